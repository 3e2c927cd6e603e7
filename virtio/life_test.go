package virtio_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// says checks that an error names the port and has these words.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range append(words, "sim:a") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// TestOpenRefusesDevicesThatMakeNoSense: what a device says of itself is checked before anything follows from it.
func TestOpenRefusesDevicesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   func(*rigConfig)
		words []string
	}{
		{"multicast address", func(c *rigConfig) { c.faults[0].BadMAC = true }, []string{"MAC", "features=-mac"}},
		{"no pairs", func(c *rigConfig) { c.device.Pairs = 2; c.faults[0].BadPairs = true }, []string{"0 queue pairs", "features=-mq"}},
		{"MTU", func(c *rigConfig) { c.faults[0].BadMTU = true }, []string{"MTU is 10", "features=-mtu"}},
		{"configuration that changes for ever", func(c *rigConfig) { c.faults[0].Churn = -1 }, []string{"changes all the time"}},
		{"no transmit queue", func(c *rigConfig) { c.faults[0].NoQueue = 2 }, []string{"queues of 0 descriptors"}},
		{"no version 1", func(c *rigConfig) { c.options.Features = not(spec.FeatureVersion1) }, []string{"version_1", "features= forbids it"}},
		{"version 1 that is not offered", func(c *rigConfig) { c.faults[0].Hide = spec.FeatureVersion1 }, []string{"version_1", "does not offer it"}},
		{"IOMMU addresses that are forbidden", func(c *rigConfig) {
			c.device.Features = spec.FeatureVersion1 | spec.FeatureAccessPlatform | spec.FeatureMAC
			c.options.Features = not(spec.FeatureAccessPlatform)
		}, []string{"access_platform", "IOMMU"}},
		{"reset that does not end", func(c *rigConfig) { c.stuckReset = true }, []string{"reset does not end"}},
		{"address that the device cannot take", func(c *rigConfig) {
			c.options.MAC = [6]byte{2, 7, 7, 7, 7, 7}
			c.options.Features = not(spec.FeatureCtrlMACAddr)
		}, []string{"020707070707", "cannot change it"}},
		{"multicast address asked for", func(c *rigConfig) { c.options.MAC = [6]byte{1, 7} }, []string{"multicast"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg rigConfig
			c.cfg(&cfg)
			r := newBareRig(t, cfg)
			p, err := r.open(0, cfg)
			if err == nil {
				_ = p.Close()
			}
			says(t, err, c.words...)
			if r.seats[0].closed != 0 {
				t.Error("Open has failed, and has closed the caller's transport")
			}
			if s := r.devs[0].Status(); s&spec.StatusDriverOK != 0 {
				t.Errorf("Open has failed, and left the device with status %#02x", s)
			}
			r.end()
		})
	}
	if _, err := virtio.Open(context.Background(), newBareRig(t, rigConfig{}).seats[0], virtio.Options{}); err == nil {
		t.Error("opened without a space and a clock")
	}
}

// TestStartFailsWithAReason: what the device refuses is told, everything is given back, and once it is put right Start works.
func TestStartFailsWithAReason(t *testing.T) {
	for _, c := range []struct {
		name   string
		pairs  int
		fault  virtionet.Faults
		words  []string
		failed bool // the driver tells the device that it gives up
		gone   bool
	}{
		{"features refused", 1, virtionet.Faults{FeaturesRefused: true}, []string{"FEATURES_OK", "mrg_rxbuf", "features=-NAME"}, true, false},
		{"features that are not there any more", 1, virtionet.Faults{Hide: spec.FeatureMrgRxBuf}, []string{"no longer offers mrg_rxbuf"}, false, false},
		{"pairs refused", 2, virtionet.Faults{ControlAnswer: spec.CtrlErr}, []string{"control command 4.1", "refuses"}, false, false},
		{"an answer that is none", 1, virtionet.Faults{ControlAnswer: 0x77}, []string{"control command", "answer 119"}, false, false},
		{"commands that are not answered", 1, virtionet.Faults{ControlSilent: true}, []string{"has not answered for 5s"}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigConfig{device: virtionet.Config{Pairs: c.pairs}})
			pool := r.pool(mbuf.Config{})
			r.devs[0].SetFaults(c.fault)
			before := r.clk.Nanos()
			cfg := nic.Config{Pool: pool, RxQueues: c.pairs, Offloads: r.ports[0].Info().Offloads & nic.RxRSSHash}
			err := r.ports[0].Start(context.Background(), cfg)
			says(t, err, c.words...)
			if n := r.devs[0].Counts().Failed; (n > 0) != c.failed {
				t.Errorf("the device was told %d times that the driver gives up, want %v", n, c.failed)
			}
			if took := time.Duration(r.clk.Nanos() - before); took > 6*time.Second {
				t.Errorf("it took %v to find out", took)
			}
			if out := pool.Stats().Out; out != 0 {
				t.Errorf("%d buffers are not back", out)
			}
			if gone := errors.Is(r.ports[0].Err(), nic.ErrGone); gone != c.gone {
				t.Errorf("Err is %v", r.ports[0].Err())
			}
			r.devs[0].SetFaults(virtionet.Faults{})
			if err := r.ports[0].Start(context.Background(), cfg); (err != nil) != c.gone {
				t.Errorf("once it is put right: %v", err)
			}
			r.end()
		})
	}
}

// TestDeviceThatTakesItsTimeIsWaitedFor: a reset that takes some reads, and a configuration that changes a few times.
func TestDeviceThatTakesItsTimeIsWaitedFor(t *testing.T) {
	slow := virtionet.Faults{ResetReads: 5, Churn: 4}
	r := newRig(t, rigConfig{faults: [2]virtionet.Faults{slow, slow}})
	r.devs[0].SetFaults(slow)
	r.start(nic.Config{})
	r.end()
}

// TestControlQueueComesAfterThePairsThatThereMayBe: without a choice of pairs it is queue 2, however many the device has. With one, a
// further command says how many are used.
func TestControlQueueComesAfterThePairsThatThereMayBe(t *testing.T) {
	commands := map[int]uint64{}
	for _, queues := range []int{1, 3} {
		r := newRig(t, rigConfig{device: virtionet.Config{Pairs: 4}, options: virtio.Options{Features: not(spec.FeatureRSS)}})
		before := r.devs[0].Counts().Commands
		r.start(nic.Config{RxQueues: queues})
		if f := r.ports[0].virtio.Negotiated(); f.Has(spec.FeatureMQ) != (queues > 1) {
			t.Errorf("%d queues: agreed on %v", queues, f)
		}
		if commands[queues] = r.devs[0].Counts().Commands - before; commands[queues] == 0 {
			t.Errorf("%d queues: no command has arrived", queues)
		}
		r.end()
	}
	if commands[3] != commands[1]+1 {
		t.Errorf("%d commands with three queues, %d with one: how many pairs are used is one more", commands[3], commands[1])
	}
}

// TestFramesOfHiddenQueuesAreReceived: a device without RSS puts frames on any queue of the pairs in use, of which the user
// has asked for one.
func TestFramesOfHiddenQueuesAreReceived(t *testing.T) {
	for name, f := range map[string]spec.Features{"steered": spec.FeatureRSS, "rss": 0} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigConfig{device: virtionet.Config{Pairs: 4}, options: virtio.Options{Features: not(f)}})
			r.start(nic.Config{RxQueues: 1, TxQueues: 4, RxDesc: 64})
			c := r.pool(mbuf.Config{}).NewCache()
			n := 0
			for q := range 4 {
				for range 25 {
					if r.ports[0].Tx(q).Send([]*mbuf.Buf{r.frame(c, r.ports[1], 60+q, byte(q))}) != 1 {
						t.Fatal("not taken")
					}
				}
				r.settle()
				n += r.drain(1, 0)
				r.ports[0].Tx(q).Reclaim()
			}
			if s := r.ports[1].Stats(); n != 100 || s.RxPackets != 100 || len(s.Queues) != 4 || s.Queues[0].RxPackets != 100 {
				t.Errorf("of 100 frames %d came; %+v", n, s)
			}
			w, err := nic.NewWaiter(r.clk)
			if err != nil {
				t.Fatal(err)
			}
			if !r.ports[1].Rx(0).Arm(w) {
				t.Error("nothing is there, and Arm says that one may not sleep")
			}
			c.Close()
			r.end()
			_ = w.Close()
		})
	}
}

// TestAddressIsTheOneAskedFor: the device's own, another by the control queue or by the legacy configuration, or one that is
// made up.
func TestAddressIsTheOneAskedFor(t *testing.T) {
	mine := [6]byte{2, 0xab, 1, 2, 3, 4}
	for _, c := range []struct {
		name string
		cfg  rigConfig
		want [6]byte // zero: made up
	}{
		{"the device's", rigConfig{}, [6]byte{2, 0, 0, 0, 0xfe, 1}},
		{"by the control queue", rigConfig{options: virtio.Options{MAC: mine}}, mine},
		{"by the legacy configuration", rigConfig{legacy: true, options: virtio.Options{MAC: mine, Features: not(spec.FeatureCtrlMACAddr)}}, mine},
		{"made up", rigConfig{options: virtio.Options{Features: not(spec.FeatureMAC)}}, [6]byte{}},
		{"made up, legacy", rigConfig{legacy: true, options: virtio.Options{Features: not(spec.FeatureMAC | spec.FeatureCtrlMACAddr)}}, [6]byte{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newBareRig(t, c.cfg)
			a, err := r.open(0, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			b, err := r.open(1, rigConfig{legacy: c.cfg.legacy})
			if err != nil {
				t.Fatal(err)
			}
			r.ports = [2]*stepped{a, b}
			mac := a.Info().MAC
			if c.want != [6]byte{} && mac != c.want || mac[0]&1 != 0 || c.want == [6]byte{} && (mac[0]&2 == 0 || mac == [6]byte{2, 0, 0, 0, 0xfe, 1}) {
				t.Errorf("the address is %x, want %x", mac, c.want)
			}
			r.start(nic.Config{})
			cache := r.pool(mbuf.Config{}).NewCache()
			b.Tx(0).Send([]*mbuf.Buf{r.frame(cache, a, 60, 1)})
			r.settle()
			if n := r.drain(0, 0); n != 1 {
				t.Errorf("a frame for %x does not come in", mac)
			}
			b.Tx(0).Reclaim()
			cache.Close()
			r.end()
		})
	}
}

// TestFeaturesArePrintedAndRestricted: what is offered, what is taken, and what a restriction makes of it.
func TestFeaturesArePrintedAndRestricted(t *testing.T) {
	only, err := spec.ParseRestriction("mac,status,csum,rss")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	r := newRig(t, rigConfig{options: virtio.Options{Features: only, Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	p := r.ports[0].virtio
	if f := p.Negotiated(); f != 0 {
		t.Errorf("before Start %v are agreed on", f)
	}
	r.start(nic.Config{Offloads: nic.TxL4Checksum})
	if got, want := p.Negotiated().String(), "csum,mac,status,version_1"; got != want {
		t.Errorf("agreed on %s, want %s", got, want)
	}
	if f := p.Offered(); !f.Has(spec.FeatureMrgRxBuf|spec.FeatureRingPacked|spec.FeatureVersion1) || f&spec.FeatureCtrlVQ == 0 {
		t.Errorf("offered are %v", f)
	}
	if s := log.String(); !strings.Contains(s, "negotiated=csum,mac,status,version_1") || !strings.Contains(s, "ring_packed") {
		t.Errorf("the log does not say what was agreed on: %s", s)
	}
	if err := p.Filters().SetPromiscuous(true); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("promiscuous without a control queue: %v", err)
	}
	r.end()
}

// TestMTULimitsFrames: the device's MTU is the limit of what is configured, and the default where that is less.
func TestMTULimitsFrames(t *testing.T) {
	r := newRig(t, rigConfig{device: virtionet.Config{MTU: 1000}})
	if n := r.ports[0].Info().MaxFrame; n != 1018 {
		t.Errorf("with an MTU of 1000 frames have up to %d bytes", n)
	}
	says(t, r.ports[0].Start(context.Background(), nic.Config{Pool: r.pool(mbuf.Config{}), MaxFrame: 1019}), "MaxFrame")
	r.start(nic.Config{})
	r.end()
	r = newRig(t, rigConfig{device: virtionet.Config{MTU: 65535}})
	if n := r.ports[0].Info().MaxFrame; n != 16384 {
		t.Errorf("with an MTU of 65535 frames have up to %d bytes", n)
	}
	r.end()
}

// TestOffloadsThatWereNotAskedForAreNotAgreedOn: a device that need not be told of checksums does not leave them to the driver.
func TestOffloadsThatWereNotAskedForAreNotAgreedOn(t *testing.T) {
	r := newRig(t, rigConfig{})
	const tx, rx = spec.FeatureCSum | spec.FeatureHostTSO4 | spec.FeatureHostTSO6, spec.FeatureGuestCSum
	const joined = spec.FeatureGuestTSO4 | spec.FeatureGuestTSO6
	for _, c := range []struct {
		o    nic.Offload
		want spec.Features
	}{
		{0, 0}, {nic.TxL4Checksum, spec.FeatureCSum}, {nic.TxTSO, tx}, {nic.RxL4Checksum, rx}, {nic.RxGSO, rx | joined}, {nic.RxGSO | nic.TxTSO, tx | rx | joined},
	} {
		r.start(nic.Config{Offloads: c.o})
		if got := r.ports[0].virtio.Negotiated() & (tx | rx | joined); got != c.want {
			t.Errorf("offloads %#x: agreed on %v, want %v", c.o, got, c.want)
		}
		for _, p := range r.ports {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	r.end()
}
