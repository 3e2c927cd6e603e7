package virtio_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"bare.wire/pci"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

func TestFirstStructureThatCanBeUsedIsTaken(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	d := r.d
	d.noCapabilities()
	d.vendor(spec.CapCommon, 6, 0, spec.CommonSize)             // a reserved BAR
	d.vendor(spec.CapCommon, 2, 0, spec.CommonSize)             // a BAR that is missing
	d.vendor(spec.CapCommon, 4, 0xffff_fffc, spec.CommonSize)   // beyond the BAR's end, and beyond 32 bits
	d.vendor(spec.CapCommon, 4, fakeCommon+2, spec.CommonSize)  // unaligned
	d.vendor(spec.CapCommon, 4, fakeCommon, spec.CommonSize-1)  // too short
	d.vendor(spec.CapCommon, 4, fakeCommon, spec.CommonSize)    // the one
	d.vendor(spec.CapCommon, 4, fakeNotify, spec.CommonSize)    // another: notification registers must not be read
	d.vendor(spec.CapNotify, 4, fakeNet, 0x1000, 1, 0, 0, 0)    // an odd multiplier
	d.vendor(spec.CapNotify, 4, fakeNotify, 0x1000, 4, 0, 0, 0) // the one
	d.vendor(spec.CapISR, 4, fakeISR, 1)
	tr := r.open(virtio.NewPCI)
	if n := must[int](r)(tr.Queues()); n != 3 {
		t.Errorf("%d queues", n)
	}
	must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 0, area(256, -1))).Ring(0)
	if len(d.heard()) != 1 {
		t.Errorf("rung: %q", d.heard())
	}
	r.fails(tr.ReadConfig(0, make([]byte, 1)), "0 bytes") // there was no capability for it
}

func TestStructureThatIsMissingIsNamedWithWhatWasThere(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*fakeDevice)
		words  []string
	}{
		"no capabilities":  {func(d *fakeDevice) {}, []string{"common configuration", "there is none"}},
		"a list in a ring": {func(d *fakeDevice) { at := d.vendor(spec.CapISR, 4, fakeISR, 1); d.config[at+1] = at }, []string{"circle"}},
		"short":            {func(d *fakeDevice) { d.config[d.vendor(spec.CapCommon, 4, 0, 64)+2] = 15 }, []string{"0x40", "too short"}},
		"at the end":       {func(d *fakeDevice) { d.next = 0xf4; d.capability(pci.CapVendor, []byte{16, 1, 4}) }, []string{"0xf4", "too short"}},
		"no notify":        {func(d *fakeDevice) { d.vendor(spec.CapCommon, 4, 0, 56); d.vendor(spec.CapISR, 4, fakeISR, 1) }, []string{"notification"}},
		"half a notify":    {func(d *fakeDevice) { d.vendor(spec.CapCommon, 4, 0, 56); d.vendor(spec.CapNotify, 4, 0, 56) }, []string{"16 bytes, 20"}},
		"odd multiplier": {func(d *fakeDevice) {
			d.vendor(spec.CapCommon, 4, 0, 56)
			d.vendor(spec.CapNotify, 4, 0, 56, 6, 0, 0, 0)
		}, []string{"multiplier is 6"}},
		"no ISR": {func(d *fakeDevice) {
			d.vendor(spec.CapCommon, 4, 0, 56)
			d.vendor(spec.CapNotify, 4, 0, 56, 4, 0, 0, 0)
		}, []string{"interrupt status"}},
		"BARs of 32 bits":  {func(d *fakeDevice) { d.structures(3); d.bars[3] = nil }, []string{"BAR 3"}},
		"capabilities off": {func(d *fakeDevice) { d.structures(4); d.config[6] = 0 }, []string{"there is none"}},
	} {
		t.Run(what, func(t *testing.T) {
			r := newTransportRig(t, spec.PCIModernNet)
			r.d.noCapabilities()
			c.change(r.d)
			_, err := virtio.NewPCI(context.Background(), r.d, r.options())
			r.fails(err, c.words...)
		})
	}
}

// wideOnly is a function whose BARs have 32-bit accesses only.
type wideOnly struct{ *fakeDevice }

func (w wideOnly) BAR(int) (pci.BAR, error) {
	words := make([]uint32, 0x1000)
	bar, err := pci.MapBAR(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 0x4000))
	return struct{ pci.BAR }{bar}, err
}

func TestRegistersWithoutNarrowAccessAreRefused(t *testing.T) {
	r := newTransportRig(t, spec.PCITransitionalNet)
	_, err := virtio.NewPCI(context.Background(), wideOnly{r.d}, r.options())
	r.fails(err, "32 bits only")
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestInterfaceIsChosenByWhatTheFunctionIs(t *testing.T) {
	for _, c := range []struct {
		device     uint16
		structures bool
		about      string // "": an error
	}{
		{spec.PCIModernNet, true, "virtio-net (modern)"},
		{spec.PCIModernNet, false, ""}, // BAR 0 may hold anything
		{spec.PCITransitionalNet, true, "virtio-net (transitional, modern interface)"},
		{spec.PCITransitionalNet, false, "virtio-net (legacy)"},
		{0x1042, true, ""},
		{0x1001, true, ""},
	} {
		r := newTransportRig(t, c.device)
		if !c.structures {
			r.d.noCapabilities()
		}
		tr, err := virtio.NewPCI(context.Background(), r.d, r.options())
		switch {
		case c.about == "":
			r.fails(err)
		case err != nil:
			t.Error(err)
		case tr.About() != c.about || tr.Legacy() != (c.about == "virtio-net (legacy)"):
			t.Errorf("%04x is %s", c.device, tr.About())
		case tr.Legacy() != strings.Contains(r.log.String(), "no capability"): // why it is not the modern one
			t.Errorf("told: %q", r.log.String())
		}
	}
	r := newTransportRig(t, spec.PCIModernNet)
	_, err := virtio.NewLegacy(context.Background(), r.d, r.options())
	r.fails(err, "1041", "1000")
	_, err = virtio.NewModern(context.Background(), r.d, virtio.TransportOptions{})
	r.fails(err, "Clock")
}

// forgetWidths is for structures that lie where others are, whose fields have other widths: what matters then is that accesses
// stay inside.
func (d *fakeDevice) forgetWidths() {
	d.wrong = slices.DeleteFunc(d.wrong, func(w string) bool { return !strings.HasPrefix(w, "BAR") })
}

// FuzzCapabilities has a hostile device say where its structures are: nothing outside a BAR is accessed.
func FuzzCapabilities(f *testing.F) {
	d := newFake(f, spec.PCIModernNet)
	f.Add(slices.Clone(d.config[:])) // Add keeps what it is given
	d.noCapabilities()
	d.vendor(spec.CapNotify, 4, 0xffff_ffff, 0xffff_ffff, 0, 0, 0, 0x80)
	f.Add(d.config[:])
	f.Fuzz(func(t *testing.T, config []byte) {
		d := newFake(t, spec.PCITransitionalNet)
		if len(config) > 0x34 {
			copy(d.config[0x34:], config[0x34:])
		}
		binary.LittleEndian.PutUint16(d.config[2:], spec.PCITransitionalNet)
		d.accessWindow = 0 // wherever it is by now, if anywhere
		t.Cleanup(d.forgetWidths)
		r := &transportRig{T: t, d: d}
		tr, err := virtio.NewPCI(context.Background(), d, r.fuzzOptions())
		if err != nil {
			return
		}
		at := area(256, 0)
		if tr.Legacy() {
			at = legacyArea(t, 256, 0x1000)
		}
		_, _ = tr.Interrupts(3, func(int) {})
		_ = tr.ReadConfig(0, make([]byte, 24))
		if bell, err := tr.EnableQueue(context.Background(), 1, at); err == nil {
			bell.Ring(0)
		}
		_ = tr.Reset(context.Background())
	})
}
