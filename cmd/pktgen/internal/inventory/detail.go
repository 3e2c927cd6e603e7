package inventory

import (
	"errors"
	"fmt"
	"math"

	"bare.wire/pci"
)

// Detail is what is known about one card beyond the list.
type Detail struct {
	ConfigBytes  int          `json:"config_bytes"` // of configuration space that the kernel shows
	Capabilities []Capability `json:"capabilities"`
	BARs         []BAR        `json:"bars"`
	MSIXVectors  int          `json:"msix_vectors"` // 0: none, or not shown
	MSIXBAR      int          `json:"msix_bar"`     // -1: none
	MSI          bool         `json:"msi"`
	FLR          bool         `json:"flr"` // can be reset alone
	Link         *PCIe        `json:"pcie,omitempty"`
	GroupMembers []string     `json:"group_members"` // with it, addresses
	// Blocked says why the IOMMU group cannot be given away, "" when it can.
	Blocked string `json:"blocked"`
	// Hidden says why not everything is shown, "" when it is.
	Hidden string `json:"hidden"`
}

// Capability is one capability of configuration space.
type Capability struct {
	ID       int    `json:"id"`
	Extended bool   `json:"extended"`
	Offset   int    `json:"offset"`
	Name     string `json:"name"`
}

// BAR is one base address register, or the expansion ROM.
type BAR struct {
	Index    int    `json:"index"` // 6: the ROM
	Kind     string `json:"kind"`  // "memory" or "ports"
	Start    string `json:"start"`
	Size     int64  `json:"size"` // bytes
	Wide     bool   `json:"wide"` // 64 bits of address
	Prefetch bool   `json:"prefetch"`
}

// PCIe is the card's link to the machine.
type PCIe struct {
	Lanes    int `json:"lanes"`
	MaxLanes int `json:"max_lanes"`
	Speed    int `json:"mts"` // megatransfers a second and lane
	MaxSpeed int `json:"max_mts"`
}

func detail(h *pci.Host, d *pci.Device) (*Detail, error) {
	out := &Detail{Capabilities: []Capability{}, BARs: bars(d), MSIXBAR: -1, GroupMembers: []string{}}
	if d.Group >= 0 {
		members, err := h.GroupDevices(d.Group)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			out.GroupMembers = append(out.GroupMembers, m.String())
		}
	}
	var refused *pci.RefusedError
	if err := h.Viable(d); errors.As(err, &refused) {
		out.Blocked = clean(refused.Error())
	}
	config, err := h.ReadConfigSpace(d.Address)
	if err != nil {
		out.Hidden = clean(err.Error())
		return out, nil
	}
	out.ConfigBytes = len(config)
	list, err := pci.Capabilities(config)
	if err != nil {
		out.Hidden = clean(err.Error())
	}
	for _, c := range list {
		name := c.Name()
		if name == "" {
			name = fmt.Sprintf("unknown %#x", c.ID)
		}
		out.Capabilities = append(out.Capabilities, Capability{ID: int(c.ID), Extended: c.Extended, Offset: c.Offset, Name: name})
	}
	out.read(config, list)
	return out, nil
}

// read takes the interesting ones apart. What is cut off or makes no sense stays unknown: it is for people to look at.
func (d *Detail) read(config []byte, list []pci.Capability) {
	_, d.MSI = pci.FindCapability(list, pci.CapMSI)
	if c, ok := pci.FindCapability(list, pci.CapMSIX); ok {
		if m, err := pci.ParseMSIX(config, c); err == nil {
			d.MSIXVectors, d.MSIXBAR = m.Vectors, m.TableBAR
		}
	}
	if c, ok := pci.FindCapability(list, pci.CapExpress); ok {
		if x, err := pci.ParseExpress(config, c); err == nil {
			d.FLR = x.FLR
			d.Link = &PCIe{Lanes: x.Width, MaxLanes: x.MaxWidth, Speed: x.Speed, MaxSpeed: x.MaxSpeed}
		}
	}
}

func bars(d *pci.Device) []BAR {
	list := []BAR{}
	for i, r := range d.Resources {
		if r.Size() == 0 {
			continue
		}
		kind := "memory"
		if r.Flags&pci.ResourceIO != 0 {
			kind = "ports"
		}
		list = append(list, BAR{Index: i, Kind: kind, Start: fmt.Sprintf("%#x", r.Start), Size: int64(min(r.Size(), math.MaxInt64)),
			Wide: r.Flags&pci.Resource64 != 0, Prefetch: r.Flags&pci.ResourcePrefetch != 0})
	}
	return list
}
