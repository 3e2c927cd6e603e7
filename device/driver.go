package device

import (
	"context"
	"fmt"
	"strings"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// driver is a driver of PCI cards.
type driver struct {
	name  string
	cards string // which, in a line
	takes func(vendor, device uint16) bool
	// features says that virtio features can be restricted.
	features bool
	// physical says whether the card reaches memory by physical addresses although an IOMMU guards it; nil: it does not.
	physical func(context.Context, pci.Function, cardOptions) (bool, error)
	open     func(context.Context, pci.Function, cardOptions) (nic.Port, error)
}

// cardOptions are what a driver is given.
type cardOptions struct {
	Options
	space    *vtop.Space
	physical bool // bus addresses are physical ones
	clock    clock.Clock
	node     int // NUMA; −1: unknown
	features spec.Restriction
}

// pciDrivers are those that there are.
var pciDrivers = []driver{
	{
		name: "ixgbe", cards: "Intel 82599 (8086:10fb and its relatives)",
		takes: func(vendor, device uint16) bool {
			known, ok := reg.LookupDevice(device)
			return vendor == reg.PCI_VENDOR_INTEL && ok && known.Supported()
		},
		open: func(ctx context.Context, fn pci.Function, opt cardOptions) (nic.Port, error) {
			return ixgbe.Open(ctx, fn, ixgbe.Options{Space: opt.space, Clock: opt.clock, Logger: opt.Logger, Node: opt.node})
		},
	},
	{
		name: "virtio", cards: fmt.Sprintf("virtio-net (%04x:%04x, %04x:%04x)", spec.PCIVendor, spec.PCITransitionalNet, spec.PCIVendor, spec.PCIModernNet),
		takes: func(vendor, device uint16) bool {
			return vendor == spec.PCIVendor && (device == spec.PCITransitionalNet || device == spec.PCIModernNet)
		},
		features: true,
		physical: virtioPhysical,
		open: func(ctx context.Context, fn pci.Function, opt cardOptions) (nic.Port, error) {
			t, err := virtioTransport(ctx, fn, opt)
			if err != nil {
				return nil, err
			}
			// What it said when the address space was chosen may not hold any more, and then addresses would be of other memory.
			if past, err := pastIOMMU(t); err != nil {
				return nil, err
			} else if past && !opt.physical {
				return nil, fmt.Errorf("%s: the device does not offer %s any more, which it did when it was looked at: open it again", fn.Name(), spec.FeatureAccessPlatform)
			}
			return virtio.Open(ctx, t, virtio.Options{
				Space: opt.space, Clock: opt.clock, Logger: opt.Logger, Node: opt.node, Features: opt.features,
			})
		},
	},
}

// virtioTransport speaks the modern interface where there is one, unless version_1 is taken out of the features of a device that
// has the legacy interface too.
func virtioTransport(ctx context.Context, fn pci.Function, opt cardOptions) (virtio.Transport, error) {
	to := virtio.TransportOptions{Clock: opt.clock, Logger: opt.Logger}
	if _, device := fn.ID(); device == spec.PCITransitionalNet && opt.features.Not.Has(spec.FeatureVersion1) {
		return virtio.NewLegacy(ctx, fn, to)
	}
	return virtio.NewPCI(ctx, fn, to)
}

// virtioPhysical looks whether a device's addresses are physical ones.
func virtioPhysical(ctx context.Context, fn pci.Function, opt cardOptions) (bool, error) {
	t, err := virtioTransport(ctx, fn, opt)
	if err != nil {
		return true, err
	}
	return pastIOMMU(t)
}

// pastIOMMU says whether a device's addresses are not those of the IOMMU: spec.FeatureAccessPlatform says that they are, and
// without it, and on the legacy interface always, QEMU's devices reach memory past the IOMMU, by physical addresses (§6.1).
func pastIOMMU(t virtio.Transport) (bool, error) {
	if t.Legacy() {
		return true, nil
	}
	f, err := t.Features()
	return !f.Has(spec.FeatureAccessPlatform), err
}

// driverFor is the driver of cards with these identifiers; nil: there is none.
func driverFor(vendor, device uint16) *driver {
	for i, d := range pciDrivers {
		if d.takes(vendor, device) {
			return &pciDrivers[i]
		}
	}
	return nil
}

// DriverFor names the driver that a PCI card with these identifiers is opened with: "ixgbe", "virtio". "" says that there is none
// here.
func DriverFor(vendor, device uint16) string {
	if d := driverFor(vendor, device); d != nil {
		return d.name
	}
	return ""
}

// drivable lists the cards that have a driver, for errors.
func drivable() string {
	var words []string
	for _, d := range pciDrivers {
		words = append(words, d.cards)
	}
	return strings.Join(words, ", ")
}

// PhysicalByID says whether cards with these identifiers reach memory by physical addresses even where there is an IOMMU, as far as
// that can be known before one is opened: transitional virtio devices do. Opening one takes root and huge pages then.
func PhysicalByID(vendor, device uint16) bool {
	return vendor == spec.PCIVendor && device == spec.PCITransitionalNet
}

// CheckFeatures is an error for a list of virtio features that the parameter features= does not take.
func CheckFeatures(list string) error {
	_, err := spec.ParseRestriction(list)
	return err
}
