package virtio_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

func TestModernDeviceFromResetToQueue(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	ctx := context.Background()
	tr := r.open(virtio.NewPCI)
	if tr.Name() != r.d.Name() || tr.About() != "virtio-net (modern)" || tr.Legacy() {
		t.Errorf("%s is %q, legacy %v", tr.Name(), tr.About(), tr.Legacy())
	}
	if err := tr.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	r.d.features = 1<<63 | 1<<40 | 1<<32 | 1<<31 | 1
	if f := must[spec.Features](r)(tr.Features()); uint64(f) != r.d.features {
		t.Errorf("features %#x, want %#x", uint64(f), r.d.features)
	}
	if err := tr.SetFeatures(1<<63 | 1<<32 | 1<<31); err != nil {
		t.Fatal(err)
	}
	if lo, hi := r.d.field("common", spec.CommonDriverFeature), r.d.field("common", spec.CommonDriverFeature+0x100); lo != 1<<31 || hi != 1<<31|1 {
		t.Errorf("the driver's features are %#x %#x", hi, lo)
	}
	for _, bit := range []uint8{spec.StatusAcknowledge, spec.StatusDriver, spec.StatusFeaturesOK} {
		if err := tr.AddStatus(ctx, bit); err != nil {
			t.Fatal(err)
		}
	}
	if v := must[uint8](r)(tr.Status()); v != 0xb || r.d.status != 0xb {
		t.Errorf("status %#x: bits are added, not replaced", v)
	}
	if n := must[int](r)(tr.Queues()); n != 3 {
		t.Errorf("%d queues", n)
	}
	if n := must[int](r)(tr.QueueSize(1)); n != 256 {
		t.Errorf("queue 1 has %d descriptors", n)
	}
	if r.d.busMaster() {
		t.Error("the device may do DMA before there is a queue")
	}
	bell := must[virtio.Doorbell](r)(tr.EnableQueue(ctx, 1, area(64, -1)))
	q := r.d.queues[1]
	if q.size != 64 || q.enable != 1 || q.desc != 0x1_2345_6000 || q.driver != 0x2_0000_1000 || q.device != 0x3_0000_2000 {
		t.Errorf("queue 1 is %+v", *q)
	}
	if !r.d.busMaster() {
		t.Error("the device cannot do DMA")
	}
	bell.Ring(0)
	if got := fmt.Sprint(r.d.heard()); got != "[0x4<2:0x1]" {
		t.Errorf("rung: %s", got)
	}
	if err := tr.Reset(ctx); err != nil || r.d.status != 0 || r.d.busMaster() {
		t.Errorf("reset: status %#x, bus master %v, %v", r.d.status, r.d.busMaster(), err)
	}
	if err := tr.Close(); err != nil || !r.d.closed || r.d.busMaster() {
		t.Errorf("close: %v", err)
	}
}

func TestFeaturesRefusedAreSeen(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	r.d.refused = spec.StatusFeaturesOK
	if err := tr.AddStatus(context.Background(), spec.StatusDriver|spec.StatusFeaturesOK); err != nil {
		t.Fatal(err)
	}
	if v := must[uint8](r)(tr.Status()); v != spec.StatusDriver {
		t.Errorf("status %#x", v)
	}
}

func TestResetWaitsUntilTheStatusIsZero(t *testing.T) {
	for reads, ok := range map[int]bool{0: true, 1: true, 500: true, -1: false} {
		for name, open := range map[string]func(context.Context, pci.Function, virtio.TransportOptions) (virtio.Transport, error){"modern": virtio.NewModern, "legacy": virtio.NewLegacy} {
			r := newTransportRig(t, spec.PCITransitionalNet)
			tr := r.open(open)
			r.d.status, r.d.resetReads = 0xf, reads
			before := r.clk.Nanos()
			err := tr.Reset(context.Background())
			if took := r.clk.Nanos() - before; took > 10e9 || ok && took > int64(reads+1)*2e6 {
				t.Errorf("%s: %d reads took %d ns", name, reads, took)
			}
			if ok {
				if err != nil {
					t.Errorf("%s: %d reads: %v", name, reads, err)
				}
				continue
			}
			r.fails(err, "device status", "0x04")
			if errors.Is(err, nic.ErrGone) {
				t.Errorf("%v: it is there", err)
			}
		}
	}
}

func TestResetThatFailsEndsDMAAllTheSame(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 0, area(256, -1)))
	r.d.resetReads = -1
	r.fails(tr.Reset(context.Background()), "device status")
	if r.d.busMaster() {
		t.Error("the device may still do DMA")
	}
}

func TestResetEndsWithItsContext(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	r.d.resetReads = -1
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tr.Reset(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("reset: %v", err)
	}
}

func TestConfigurationThatChangesIsReadAgain(t *testing.T) {
	for churn, ok := range map[int]bool{0: true, 1: true, 5: true, -1: false} {
		r := newTransportRig(t, spec.PCIModernNet)
		tr := r.open(virtio.NewModern)
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

func TestConfigurationIsNotReadBeyondItsEnd(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	r.d.noCapabilities()
	r.d.vendor(spec.CapCommon, 4, fakeCommon, spec.CommonSize)
	r.d.vendor(spec.CapISR, 4, fakeISR, 1)
	r.d.vendor(spec.CapDevice, 4, fakeNet, 8)
	r.d.vendor(spec.CapNotify, 4, fakeNotify, 0x1000, 4, 0, 0, 0)
	tr := r.open(virtio.NewModern)
	if err := tr.ReadConfig(0, make([]byte, 8)); err != nil {
		t.Error(err)
	}
	r.fails(tr.ReadConfig(8, make([]byte, 2)), "8 bytes")
	r.fails(tr.ReadConfig(0, make([]byte, 9)), "8 bytes")
	r.fails(tr.ReadConfig(-1, make([]byte, 1)), "8 bytes")
	r.fails(tr.WriteConfig(6, make([]byte, 3)), "8 bytes")
}

func TestConfigurationIsWritten(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	if err := tr.WriteConfig(0, []byte{1, 2, 3, 4, 5, 6, 7, 8}); err != nil {
		t.Fatal(err)
	}
	if got := r.d.netConfig[:9]; string(got) != "\x01\x02\x03\x04\x05\x06\x07\x08\x18" {
		t.Errorf("it is %x", got)
	}
}

func TestEveryQueueRingsItsOwnBell(t *testing.T) {
	for _, c := range []struct {
		multiplier uint32
		offsets    [3]uint16
		want       string
	}{
		{4, [3]uint16{0, 1, 2}, "[0x0<2:0x0 0x4<2:0x1 0x8<2:0x2]"},
		{4, [3]uint16{7, 3, 7}, "[0x1c<2:0x0 0xc<2:0x1 0x1c<2:0x2]"},
		{0, [3]uint16{9, 5, 0}, "[0x0<2:0x0 0x0<2:0x1 0x0<2:0x2]"},
		{2, [3]uint16{0, 0x7ff, 1}, "[0x0<2:0x0 0xffe<2:0x1 0x2<2:0x2]"},
	} {
		r := newTransportRig(t, spec.PCIModernNet)
		r.d.noCapabilities()
		r.d.vendor(spec.CapCommon, 4, fakeCommon, spec.CommonSize)
		r.d.vendor(spec.CapISR, 4, fakeISR, 1)
		r.d.vendor(spec.CapNotify, 4, fakeNotify, 0x1000, binary.LittleEndian.AppendUint32(nil, c.multiplier)...)
		tr := r.open(virtio.NewModern)
		for i, off := range c.offsets {
			r.d.queues[i].notifyOff = off
			must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), i, area(256, -1))).Ring(0)
		}
		if got := fmt.Sprint(r.d.heard()); got != c.want {
			t.Errorf("multiplier %d: rung %s, want %s", c.multiplier, got, c.want)
		}
	}
}

func TestBellOutsideItsStructureIsRefused(t *testing.T) {
	for off, ok := range map[uint16]bool{0x3ff: true, 0x400: false, 0xffff: false} {
		r := newTransportRig(t, spec.PCIModernNet)
		r.d.queues[0].notifyOff = off
		_, err := r.open(virtio.NewModern).EnableQueue(context.Background(), 0, area(256, -1))
		if ok && err != nil {
			t.Errorf("offset %#x: %v", off, err)
		}
		if !ok {
			r.fails(err, "queue 0", "notification register")
			if r.d.queues[0].enable != 0 {
				t.Error("the queue is enabled")
			}
		}
	}
}

func TestQueueNumberDoesNotEndAt255(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	r.d.queues[300] = &fakeQueue{most: 128, size: 128, notifyOff: 300}
	tr := r.open(virtio.NewModern)
	must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 300, area(128, -1))).Ring(0)
	if got := fmt.Sprint(r.d.heard()); got != "[0x4b0<2:0x12c]" {
		t.Errorf("rung: %s", got)
	}
	for _, q := range []int{-1, 1 << 16} {
		_, err := tr.QueueSize(q)
		r.fails(err, fmt.Sprintf("queue %d", q))
	}
}

func TestBellCarriesThePositionWhereThatIsAgreed(t *testing.T) {
	for f, want := range map[spec.Features]string{
		spec.FeatureNotificationData:                               "[0x4<4:0x80050001]",
		spec.FeatureNotifConfigData:                                "[0x4<2:0xbeef]",
		spec.FeatureNotificationData | spec.FeatureNotifConfigData: "[0x4<4:0x8005beef]",
		0: "[0x4<2:0x1]",
	} {
		r := newTransportRig(t, spec.PCIModernNet)
		r.d.queues[1].notifyData = 0xbeef
		tr := r.open(virtio.NewModern)
		if err := tr.SetFeatures(f); err != nil {
			t.Fatal(err)
		}
		at := area(256, -1)
		at.NotificationData = f.Has(spec.FeatureNotificationData)
		must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 1, at)).Ring(0x8005)
		if got := fmt.Sprint(r.d.heard()); got != want {
			t.Errorf("%v: rung %s, want %s", f, got, want)
		}
	}
}

func TestBellForAPositionIsAligned(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	r.d.noCapabilities()
	r.d.vendor(spec.CapCommon, 4, fakeCommon, spec.CommonSize)
	r.d.vendor(spec.CapISR, 4, fakeISR, 1)
	r.d.vendor(spec.CapNotify, 4, fakeNotify, 0x1000, 2, 0, 0, 0)
	tr := r.open(virtio.NewModern)
	at := area(256, -1)
	at.NotificationData = true
	_, err := tr.EnableQueue(context.Background(), 1, at)
	r.fails(err, "features=-notification_data")
}

func TestFeaturesWithoutTheirFieldsAreLeftOut(t *testing.T) {
	for size, want := range map[uint32]spec.Features{
		spec.CommonSize:      spec.FeatureVersion1,
		spec.CommonSizeReset: spec.FeatureVersion1 | spec.FeatureRingReset | spec.FeatureNotifConfigData,
	} {
		r := newTransportRig(t, spec.PCIModernNet)
		r.d.noCapabilities()
		r.d.vendor(spec.CapCommon, 4, fakeCommon, size)
		r.d.vendor(spec.CapISR, 4, fakeISR, 1)
		r.d.vendor(spec.CapNotify, 4, fakeNotify, 0x1000, 4, 0, 0, 0)
		r.d.features = uint64(spec.FeatureVersion1 | spec.FeatureRingReset | spec.FeatureNotifConfigData)
		if f := must[spec.Features](r)(r.open(virtio.NewModern).Features()); f != want {
			t.Errorf("%d bytes: %v, want %v", size, f, want)
		}
	}
}

func TestQueueThatTheDeviceDoesNotTakeIsAnError(t *testing.T) {
	ctx := context.Background()
	for what, c := range map[string]struct {
		change func(*fakeDevice)
		size   int
		words  []string
	}{
		"too large":           {func(*fakeDevice) {}, 257, []string{"256 descriptors at most"}},
		"none":                {func(*fakeDevice) {}, 0, []string{"256 descriptors at most"}},
		"not there":           {func(d *fakeDevice) { delete(d.queues, 0) }, 1, []string{"0 descriptors at most"}},
		"cannot be lowered":   {func(d *fakeDevice) { d.stuckSize = true }, 64, []string{"reads 256", "64"}},
		"enabled already":     {func(d *fakeDevice) { d.queues[0].enable = 1 }, 64, []string{"enabled already"}},
		"more than there are": {func(d *fakeDevice) { d.queues[0].size = 40000 }, 64, []string{"40000", "32768"}},
	} {
		t.Run(what, func(t *testing.T) {
			r := newTransportRig(t, spec.PCIModernNet)
			c.change(r.d)
			_, err := r.open(virtio.NewModern).EnableQueue(ctx, 0, area(c.size, -1))
			r.fails(err, append(c.words, "queue 0")...)
		})
	}
}

func TestQueueIsResetByItselfAndEnabledAgain(t *testing.T) {
	ctx := context.Background()
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	must[virtio.Doorbell](r)(tr.EnableQueue(ctx, 1, area(64, -1)))
	if err := tr.DisableQueue(ctx, 1); !errors.Is(err, errors.ErrUnsupported) || r.d.queues[1].resets != 0 {
		t.Errorf("without the feature: %v", err)
	}
	if err := tr.SetFeatures(spec.FeatureRingReset); err != nil {
		t.Fatal(err)
	}
	if err := tr.DisableQueue(ctx, 1); err != nil || r.d.queues[1].resets != 1 {
		t.Errorf("disable: %v", err)
	}
	must[virtio.Doorbell](r)(tr.EnableQueue(ctx, 1, area(128, -1)))
	if r.d.queues[1].size != 128 || r.d.queues[1].enable != 1 {
		t.Errorf("queue 1 is %+v", *r.d.queues[1])
	}
	r.d.stuckReset = true
	r.fails(tr.DisableQueue(ctx, 1), "reset of queue 1")
	r.d.stuckReset = false
	if err := tr.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if err := tr.DisableQueue(ctx, 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("after a reset, which forgets what was agreed: %v", err)
	}
}

func TestUnpluggedDeviceIsGoneWhereverOneLooks(t *testing.T) {
	ctx := context.Background()
	for name, open := range map[string]func(context.Context, pci.Function, virtio.TransportOptions) (virtio.Transport, error){"modern": virtio.NewModern, "legacy": virtio.NewLegacy} {
		for what, look := range map[string]func(virtio.Transport) error{
			"reset":        func(tr virtio.Transport) error { return tr.Reset(ctx) },
			"status":       func(tr virtio.Transport) error { _, err := tr.Status(); return err },
			"add status":   func(tr virtio.Transport) error { return tr.AddStatus(ctx, spec.StatusDriver) },
			"features":     func(tr virtio.Transport) error { _, err := tr.Features(); return err },
			"queues":       func(tr virtio.Transport) error { _, err := tr.Queues(); return err },
			"queue size":   func(tr virtio.Transport) error { _, err := tr.QueueSize(0); return err },
			"enable queue": func(tr virtio.Transport) error { _, err := tr.EnableQueue(ctx, 0, area(256, -1)); return err },
			"read config":  func(tr virtio.Transport) error { return tr.ReadConfig(0, make([]byte, 6)) },
		} {
			r := newTransportRig(t, spec.PCITransitionalNet)
			tr := r.open(open)
			r.d.unplug()
			if err := look(tr); !errors.Is(err, nic.ErrGone) || !strings.Contains(err.Error(), r.d.Name()) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if took := r.clk.Nanos(); took > 1e6 {
				t.Errorf("%s, %s: it took %d ns to notice", name, what, took)
			}
		}
	}
	for name, open := range map[string]func(context.Context, pci.Function, virtio.TransportOptions) (virtio.Transport, error){"modern": virtio.NewModern, "legacy": virtio.NewLegacy, "any": virtio.NewPCI} {
		r := newTransportRig(t, spec.PCITransitionalNet)
		r.d.unplug()
		if _, err := open(ctx, r.d, r.options()); !errors.Is(err, nic.ErrGone) {
			t.Errorf("%s: open: %v", name, err)
		}
	}
}

func TestUnpluggedInTheMiddleIsGoneAndNothingElse(t *testing.T) {
	ctx := context.Background()
	for name, open := range map[string]func(context.Context, pci.Function, virtio.TransportOptions) (virtio.Transport, error){"modern": virtio.NewModern, "legacy": virtio.NewLegacy} {
		for what, do := range map[string]func(*transportRig, virtio.Transport) error{
			"features": func(r *transportRig, tr virtio.Transport) error {
				want := spec.Features(r.d.features)
				if tr.Legacy() {
					want &= 1<<32 - 1
				}
				f, err := tr.Features()
				if err == nil && f != want {
					return fmt.Errorf("features %v of a device that was unplugged meanwhile", f)
				}
				return err
			},
			"enable and disable": func(r *transportRig, tr virtio.Transport) error {
				at := area(256, 1)
				if tr.Legacy() {
					at = legacyArea(t, 256, 0x1000)
				}
				if _, err := tr.EnableQueue(ctx, 1, at); err != nil {
					return err
				}
				return tr.DisableQueue(ctx, 1)
			},
			"read config": func(_ *transportRig, tr virtio.Transport) error { return tr.ReadConfig(0, make([]byte, 20)) },
		} {
			for left := 1; ; left++ {
				r := newTransportRig(t, spec.PCITransitionalNet)
				tr := r.open(open)
				must[int](r)(tr.Interrupts(3, func(int) {}))
				if err := tr.SetFeatures(spec.FeatureRingReset); err != nil && !tr.Legacy() {
					t.Fatal(err)
				}
				r.d.left = left
				err := do(r, tr)
				if !r.d.gone { // it was over before
					if err != nil || left == 1 {
						t.Errorf("%s, %s: %v", name, what, err)
					}
					break
				}
				if err != nil && !errors.Is(err, nic.ErrGone) {
					t.Errorf("%s, %s, unplugged after %d accesses: %v", name, what, left, err)
				}
			}
		}
	}
}

func TestStatusOfOnesOfADeviceThatIsThereIsAStatus(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	r.d.status = 0xff
	if v, err := tr.Status(); v != 0xff || err != nil {
		t.Errorf("status %#x, %v", v, err)
	}
}

func TestWhoAsksIsToldOnceThatTheFunctionHasGone(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	var told []error
	tr.OnGone(func(err error) { told = append(told, err) })
	for range 2 {
		r.d.fnGone(fmt.Errorf("%s: unplugged: %w", r.d.Name(), pci.ErrGone))
	}
	if len(told) != 1 || !errors.Is(told[0], nic.ErrGone) || !errors.Is(told[0], pci.ErrGone) {
		t.Errorf("told %v", told)
	}
}
