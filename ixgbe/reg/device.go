package reg

import "slices"

// Family is a generation of controllers.
type Family string

// The families. The table of this package is the 82599's.
const (
	Family82599   Family = "82599"
	FamilyX540    Family = "X540"
	FamilyX550    Family = "X550"
	FamilyX550EMx Family = "X550EM_x"
	FamilyX550EMa Family = "X550EM_a"
)

// Device is one PCI device id of vendor PCI_VENDOR_INTEL.
type Device struct {
	ID     uint16
	Family Family
	Name   string
	VF     bool // a virtual function
}

// Supported reports whether this package's table fits the device: a physical
// function of the 82599.
func (d Device) Supported() bool { return d.Family == Family82599 && !d.VF }

// Devices returns every device id that is known, supported or not, in the order
// of the ids within each family.
func Devices() []Device { return slices.Clone(devices) }

// LookupDevice returns the device with that id.
func LookupDevice(id uint16) (d Device, ok bool) {
	i := slices.IndexFunc(devices, func(d Device) bool { return d.ID == id })
	if i < 0 {
		return Device{}, false
	}
	return devices[i], true
}

var devices = []Device{
	{ID: 0x10F7, Family: Family82599, Name: "KX4"},
	{ID: 0x10F8, Family: Family82599, Name: "combo backplane"},
	{ID: 0x10F9, Family: Family82599, Name: "CX4"},
	{ID: 0x10FB, Family: Family82599, Name: "SFP+"},
	{ID: 0x10FC, Family: Family82599, Name: "XAUI LOM"},
	{ID: 0x1507, Family: Family82599, Name: "SFP+ EM"},
	{ID: 0x1514, Family: Family82599, Name: "KX4 mezzanine"},
	{ID: 0x1517, Family: Family82599, Name: "KR"},
	{ID: 0x151C, Family: Family82599, Name: "10GBASE-T LOM"},
	{ID: 0x1529, Family: Family82599, Name: "SFP+ FCoE"},
	{ID: 0x152A, Family: Family82599, Name: "backplane FCoE"},
	{ID: 0x154A, Family: Family82599, Name: "quad SFP+"},
	{ID: 0x154D, Family: Family82599, Name: "SFP+ SF2"},
	{ID: 0x154F, Family: Family82599, Name: "LS combo"},
	{ID: 0x1557, Family: Family82599, Name: "82599EN single-port SFP+"},
	{ID: 0x1558, Family: Family82599, Name: "QSFP SF"},
	{ID: 0x10ED, Family: Family82599, Name: "virtual function", VF: true},
	{ID: 0x152E, Family: Family82599, Name: "virtual function, Hyper-V", VF: true},
	{ID: 0x1528, Family: FamilyX540, Name: "X540-T"},
	{ID: 0x1560, Family: FamilyX540, Name: "X540-T1"},
	{ID: 0x1515, Family: FamilyX540, Name: "virtual function", VF: true},
	{ID: 0x1530, Family: FamilyX540, Name: "virtual function, Hyper-V", VF: true},
	{ID: 0x1563, Family: FamilyX550, Name: "X550-T"},
	{ID: 0x15D1, Family: FamilyX550, Name: "X550-T1"},
	{ID: 0x1564, Family: FamilyX550, Name: "virtual function, Hyper-V", VF: true},
	{ID: 0x1565, Family: FamilyX550, Name: "virtual function", VF: true},
	{ID: 0x15AA, Family: FamilyX550EMx, Name: "KX4"},
	{ID: 0x15AB, Family: FamilyX550EMx, Name: "KR"},
	{ID: 0x15AC, Family: FamilyX550EMx, Name: "SFP+"},
	{ID: 0x15AD, Family: FamilyX550EMx, Name: "10GBASE-T"},
	{ID: 0x15AE, Family: FamilyX550EMx, Name: "1GBASE-T"},
	{ID: 0x15B0, Family: FamilyX550EMx, Name: "XFI"},
	{ID: 0x15A8, Family: FamilyX550EMx, Name: "virtual function", VF: true},
	{ID: 0x15A9, Family: FamilyX550EMx, Name: "virtual function, Hyper-V", VF: true},
	{ID: 0x15C2, Family: FamilyX550EMa, Name: "KR"},
	{ID: 0x15C3, Family: FamilyX550EMa, Name: "KR L"},
	{ID: 0x15C4, Family: FamilyX550EMa, Name: "SFP+ N"},
	{ID: 0x15C6, Family: FamilyX550EMa, Name: "SGMII"},
	{ID: 0x15C7, Family: FamilyX550EMa, Name: "SGMII L"},
	{ID: 0x15C8, Family: FamilyX550EMa, Name: "10GBASE-T"},
	{ID: 0x15CA, Family: FamilyX550EMa, Name: "QSFP"},
	{ID: 0x15CC, Family: FamilyX550EMa, Name: "QSFP N"},
	{ID: 0x15CE, Family: FamilyX550EMa, Name: "SFP+"},
	{ID: 0x15E4, Family: FamilyX550EMa, Name: "1GBASE-T"},
	{ID: 0x15E5, Family: FamilyX550EMa, Name: "1GBASE-T L"},
	{ID: 0x15B4, Family: FamilyX550EMa, Name: "virtual function, Hyper-V", VF: true},
	{ID: 0x15C5, Family: FamilyX550EMa, Name: "virtual function", VF: true},
}
