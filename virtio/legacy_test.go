package virtio_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// legacyArea is a ring of n descriptors in one piece at desc.
func legacyArea(t testing.TB, n int, desc uint64) virtio.QueueArea {
	t.Helper()
	l, err := spec.NewSplitLayout(n, spec.LegacyAlign)
	if err != nil {
		t.Fatal(err)
	}
	return virtio.QueueArea{Size: n, Desc: desc, Driver: desc + uint64(l.Avail), Device: desc + uint64(l.Used), Vector: -1}
}

func TestLegacyDeviceFromResetToQueue(t *testing.T) {
	ctx := context.Background()
	r := newTransportRig(t, spec.PCITransitionalNet)
	r.d.noCapabilities()
	r.d.features = 0x8123_4567
	tr := r.open(virtio.NewPCI)
	if !tr.Legacy() {
		t.Fatal(tr.About())
	}
	if err := tr.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if f := must[spec.Features](r)(tr.Features()); f != 0x8123_4567 {
		t.Errorf("features %#x", uint64(f))
	}
	if err := tr.SetFeatures(0x123); err != nil || r.d.field("legacy", spec.LegacyDriverFeatures) != 0x123 {
		t.Errorf("driver features %#x, %v", r.d.field("legacy", spec.LegacyDriverFeatures), err)
	}
	r.fails(tr.SetFeatures(spec.FeatureVersion1), "version_1")
	for _, bit := range []uint8{spec.StatusAcknowledge, spec.StatusDriver, spec.StatusDriverOK} {
		if err := tr.AddStatus(ctx, bit); err != nil {
			t.Fatal(err)
		}
	}
	if v := must[uint8](r)(tr.Status()); v != 7 {
		t.Errorf("status %#x", v)
	}
	if n := must[int](r)(tr.Queues()); n != 3 {
		t.Errorf("%d queues", n)
	}
	bell := must[virtio.Doorbell](r)(tr.EnableQueue(ctx, 1, legacyArea(t, 256, 0xfff_ffff_0000)))
	if r.d.queues[1].pfn != 0xffff_fff0 || !r.d.busMaster() {
		t.Errorf("page %#x, bus master %v", r.d.queues[1].pfn, r.d.busMaster())
	}
	bell.Ring(0)
	if got := fmt.Sprint(r.d.heard()); got != "[0x10<2:0x1]" {
		t.Errorf("rung: %s", got)
	}
	_, err := tr.EnableQueue(ctx, 1, legacyArea(t, 256, 0x1000))
	r.fails(err, "queue 1 has a ring already")
	if err := tr.DisableQueue(ctx, 1); err != nil || r.d.queues[1].pfn != 0 {
		t.Errorf("disable: %v", err)
	}
	must[virtio.Doorbell](r)(tr.EnableQueue(ctx, 1, legacyArea(t, 256, 0x1000)))
	if err := tr.Reset(ctx); err != nil || r.d.busMaster() {
		t.Errorf("reset: %v", err)
	}
}

func TestLegacyConfigurationMovesWithMSIX(t *testing.T) {
	r := newTransportRig(t, spec.PCITransitionalNet)
	tr := r.open(virtio.NewLegacy)
	read := func(when string) {
		t.Helper()
		var p [12]byte
		if err := tr.ReadConfig(0, p[:]); err != nil || string(p[:]) != string(r.d.netConfig[:12]) {
			t.Errorf("%s: read %x, want %x, %v", when, p, r.d.netConfig[:12], err)
		}
		if err := tr.WriteConfig(0, []byte{1, 2, 3, 4, 5, byte(len(when))}); err != nil || r.d.netConfig[5] != byte(len(when)) {
			t.Errorf("%s: written %x, %v", when, r.d.netConfig[:6], err)
		}
	}
	read("without interrupts")
	if n := must[int](r)(tr.Interrupts(3, func(int) {})); n != 3 || r.d.configVec != 2 {
		t.Errorf("%d vectors, %d for the configuration", n, r.d.configVec)
	}
	read("with MSI-X")
	must[int](r)(tr.Interrupts(0, nil))
	read("without again")
	r.d.msix = 0
	must[int](r)(tr.Interrupts(3, func(int) {}))
	read("with INTx")
}

func TestLegacyConfigurationThatChangesIsReadAgain(t *testing.T) {
	for churn, ok := range map[int]bool{1: true, 7: true, -1: false} {
		r := newTransportRig(t, spec.PCITransitionalNet)
		tr := r.open(virtio.NewLegacy)
		r.d.churn = churn
		var p [spec.NetConfigSize]byte
		err := tr.ReadConfig(0, p[:])
		if ok && (err != nil || p != r.d.netConfig) {
			t.Errorf("%d changes: read %x, want %x, %v", churn, p, r.d.netConfig, err)
		}
		if !ok {
			r.fails(err, "changed")
		}
	}
}

func TestLegacyConfigurationIsNotReadBeyondItsEnd(t *testing.T) {
	r := newTransportRig(t, spec.PCITransitionalNet)
	r.d.bars[0].size = 0x20
	tr := r.open(virtio.NewLegacy)
	if err := tr.ReadConfig(0, make([]byte, 12)); err != nil {
		t.Error(err)
	}
	r.fails(tr.ReadConfig(0, make([]byte, 13)), "12 bytes")
	must[int](r)(tr.Interrupts(1, func(int) {}))
	r.fails(tr.ReadConfig(0, make([]byte, 12)), "8 bytes")
	r.d.bars[0].size = 0x10
	_, err := virtio.NewLegacy(context.Background(), r.d, r.options())
	r.fails(err, "BAR 0 has 16 bytes")
}

func TestLegacyRingThatCannotBeToldIsRefused(t *testing.T) {
	r := newTransportRig(t, spec.PCITransitionalNet)
	tr := r.open(virtio.NewLegacy)
	good := legacyArea(t, 256, 0x1000)
	for what, c := range map[string]struct {
		area func() virtio.QueueArea
		word string
	}{
		"another size":      {func() virtio.QueueArea { return legacyArea(t, 128, 0x1000) }, "256"},
		"packed":            {func() virtio.QueueArea { a := good; a.Packed = true; return a }, "packed"},
		"above 16 TiB":      {func() virtio.QueueArea { return legacyArea(t, 256, 1<<44) }, "16 TiB"},
		"across 16 TiB":     {func() virtio.QueueArea { return legacyArea(t, 256, 1<<44-4096) }, "16 TiB"},
		"at 0":              {func() virtio.QueueArea { return legacyArea(t, 256, 0) }, "16 TiB"},
		"off its alignment": {func() virtio.QueueArea { return legacyArea(t, 256, 0x1800) }, "multiple of 4096"},
		"in pieces":         {func() virtio.QueueArea { a := good; a.Device += 4096; return a }, "in one piece"},
		"used ring close":   {func() virtio.QueueArea { a := good; a.Device = a.Driver + 518; return a }, "in one piece"},
	} {
		_, err := tr.EnableQueue(context.Background(), 0, c.area())
		if r.fails(err, "queue 0", c.word); r.d.queues[0].pfn != 0 || r.d.busMaster() {
			t.Errorf("%s: the device has been told", what)
		}
	}
	r.d.queues[0].size = 48
	_, err := tr.QueueSize(0)
	r.fails(err, "powers of two")
}

func TestLegacyQueueWhoseEndIsTheDevicesIsNotTakenAwayByItself(t *testing.T) {
	ctx := context.Background()
	r := newTransportRig(t, spec.PCITransitionalNet)
	tr := r.open(virtio.NewLegacy)
	if err := tr.AddStatus(ctx, spec.StatusDriverOK); err != nil {
		t.Fatal(err)
	}
	must[virtio.Doorbell](r)(tr.EnableQueue(ctx, 0, legacyArea(t, 256, 0x1000)))
	r.d.stuckReset = true
	if err := tr.DisableQueue(ctx, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("disable: %v", err)
	}
}
