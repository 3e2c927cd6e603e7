package pci

import (
	"sync"

	ids "github.com/u-root/u-root/pkg/pci"
)

// byVendor finds a vendor's place in u-root's list, which is ordered for people and long.
var byVendor = sync.OnceValue(func() map[uint16]*ids.Vendor {
	m := make(map[uint16]*ids.Vendor, len(ids.IDs))
	for i := range ids.IDs {
		m[ids.IDs[i].ID] = &ids.IDs[i]
	}
	return m
})

// Names returns the names of a vendor and its device, "" for what is in no list.
func Names(vendor, device uint16) (vendorName, deviceName string) {
	v := byVendor()[vendor]
	if v == nil {
		return "", ""
	}
	for i := range v.Devices {
		if v.Devices[i].ID == device {
			return v.Name, v.Devices[i].Name
		}
	}
	return v.Name, ""
}
