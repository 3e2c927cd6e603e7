package virtio_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"bare.wire/nic/nictest"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
)

// not is a restriction that takes features out.
func not(f spec.Features) spec.Restriction { return spec.Restriction{Not: f} }

const packed, inOrder = spec.FeatureRingPacked, spec.FeatureInOrder

// openBench draws delays and interleavings from the seed, and what is agreed on.
func openBench(t testing.TB, seed uint64) *nictest.Bench {
	cfg := rigConfig{}
	cfg.device.Seed = seed
	if seed != 0 {
		spread := time.Duration(1 + seed*seed%40)
		cfg.device.Timing = virtionet.Timing{Fetch: spread * 100, Used: 4000 / spread}
		cfg.device.MaxStep = int(seed % 5)
		for bit, f := range []spec.Features{packed, inOrder, spec.FeatureMrgRxBuf, spec.FeatureIndirectDesc, spec.FeatureEventIdx} {
			if seed>>bit&1 != 0 {
				cfg.options.Features.Not |= f
			}
		}
		if cfg.options.Features.Not&inOrder != 0 && seed%3 > 0 {
			cfg.device.Order = virtionet.Shuffled
		}
	}
	return newRig(t, cfg).bench()
}

// TestConformance runs the suite on the rings that a device offers who can do anything: packed and in order.
func TestConformance(t *testing.T) { nictest.TestPort(t, openBench) }

// variant is another agreement between driver and device.
type variant struct {
	name string
	cfg  func(*rigConfig)
	some string // situations, "" all
}

func (v variant) run(t *testing.T) {
	t.Run(v.name, func(t *testing.T) {
		nictest.TestSome(t, func(t testing.TB, seed uint64) *nictest.Bench {
			cfg := rigConfig{}
			cfg.device.Seed = seed
			v.cfg(&cfg)
			return newRig(t, cfg).bench()
		}, func(situation string) bool { return v.some == "" || strings.Contains(" "+v.some+" ", " "+situation+" ") })
	})
}

// TestConformanceSplit is the same on split rings, in order and not.
func TestConformanceSplit(t *testing.T) {
	variant{name: "in any order", cfg: func(c *rigConfig) { c.options.Features = not(packed | inOrder); c.device.Order = virtionet.Shuffled }}.run(t)
}

// TestConformanceLegacy is the same by the legacy interface.
func TestConformanceLegacy(t *testing.T) {
	variant{name: "legacy", cfg: func(c *rigConfig) { c.legacy = true; c.device.Size = 512 }}.run(t)
}

// full says whether the long runs are wanted.
func full() bool { return os.Getenv("BAREWIRE_FULL") != "" }
