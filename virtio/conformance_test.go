package virtio_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic/nictest"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// not is a restriction that takes features out.
func not(f spec.Features) spec.Restriction { return spec.Restriction{Not: f} }

// Short names for what changes most in how rings work.
const (
	packed   = spec.FeatureRingPacked
	inOrder  = spec.FeatureInOrder
	mrg      = spec.FeatureMrgRxBuf
	indirect = spec.FeatureIndirectDesc
	eventIdx = spec.FeatureEventIdx
)

// openBench draws delays, interleavings and what is agreed on from the seed; 0 is all that a device offers who can do anything.
func openBench(t testing.TB, seed uint64) *nictest.Bench {
	cfg := rigConfig{}
	cfg.device.Seed = seed
	if seed != 0 {
		spread := time.Duration(1 + seed*seed%40)
		cfg.device.Timing = virtionet.Timing{Fetch: spread * 100, Used: 4000 / spread}
		cfg.device.MaxStep = int(seed / 7 % 5)
		for bit, f := range []spec.Features{packed, inOrder, mrg, indirect, eventIdx} {
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

// variant is another agreement between driver and device.
type variant struct {
	name  string
	cfg   func(*rigConfig)
	which *situations // nil: all
}

// situations are names of those of nictest, or of parts of them.
type situations struct{ names string }

func (s *situations) has(name string) bool {
	if s == nil {
		return true
	}
	for _, part := range strings.Fields(s.names) {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

var (
	// ringSituations are those that go differently on rings of another kind, lifeSituations those that do by another transport,
	// queueSituations those with several queues.
	ringSituations = &situations{"Lengths OfEverySize RingFull Gather Scatter Jumbo LongBuffers HalfReceived PoolRunsDry FewerBuffers InFlight " +
		"ArmAndWait NoWakeIsLost Mixed LongestFrames ChecksumsOn Joined Allocated"}
	lifeSituations = &situations{"InfoMakesSense Restart WrongState Refused OneFrame StopWith StartStop Filters TooMany Arm NoWake Link Removal " +
		"ManyQueues"}
	// slowSituations are of ringSituations those in which buffers change hands in unusual ways.
	slowSituations  = &situations{"RingFullKeeps Gather Scatter HalfReceived PoolRunsDry InFlight ArmAndWait NoWakeIsLost Mixed Joined"}
	queueSituations = &situations{"ManyQueues RSS FullQueue Idle Restart ArmAndWait Filters"}
)

func (v variant) run(t *testing.T) {
	t.Run(v.name, func(t *testing.T) {
		which := v.which
		if (which == nil || which == ringSituations) && slowBuild && !full() {
			which = slowSituations // the rest is the same code as in TestConformance
		}
		nictest.TestSome(t, func(t testing.TB, seed uint64) *nictest.Bench {
			cfg := rigConfig{}
			cfg.device.Seed = seed
			v.cfg(&cfg)
			return newRig(t, cfg).bench()
		}, which.has)
	})
}

// TestConformance runs the suite on packed rings in order, with every feature that there is.
func TestConformance(t *testing.T) { nictest.TestPort(t, openBench) }

// TestConformanceSplit is the same on split rings whose buffers come back in any order.
func TestConformanceSplit(t *testing.T) {
	variant{name: "any order", cfg: func(c *rigConfig) { c.options.Features = not(packed | inOrder); c.device.Order = virtionet.Shuffled }}.run(t)
}

// TestConformanceLegacy is the same by the legacy interface: rings of one size and layout, features below 32, no FEATURES_OK.
func TestConformanceLegacy(t *testing.T) {
	variant{name: "legacy", cfg: func(c *rigConfig) { c.legacy = true; c.device.Size = 512 }}.run(t)
}

// TestConformancePCI is what may go another way by PCI registers and message interrupts.
func TestConformancePCI(t *testing.T) {
	for i, v := range []variant{
		{name: "modern", cfg: func(c *rigConfig) { c.pci = true; c.device.Pairs = 2 }},
		{name: "modern, one pin", cfg: func(c *rigConfig) { c.pci = true; c.function.NoMSIX = true }},
		{name: "modern, two vectors", cfg: func(c *rigConfig) { c.pci = true; c.function.Vectors = 2; c.device.Pairs = 2 }},
		{name: "legacy", cfg: func(c *rigConfig) {
			c.pci, c.legacy = true, true
			c.device.Size, c.function.Kind = 512, virtionet.Transitional
		}},
		{name: "legacy, one pin", cfg: func(c *rigConfig) {
			c.pci, c.legacy, c.function.NoMSIX = true, true, true
			c.device.Size, c.function.Kind = 512, virtionet.Transitional
		}},
	} {
		if slowBuild && !full() && i != 0 {
			continue
		}
		v.which = lifeSituations
		v.run(t)
	}
}

// TestConformanceOtherCard has an 82599 at the other end of the wire.
func TestConformanceOtherCard(t *testing.T) {
	variant{name: "82599", cfg: func(c *rigConfig) { c.other = true }}.run(t)
}

// TestConformanceManyPairs has four queue pairs, with receive-side scaling and without: then the device steers.
func TestConformanceManyPairs(t *testing.T) {
	for i, v := range []variant{
		{name: "rss", cfg: func(c *rigConfig) { c.device.Pairs = 4 }},
		{name: "no hash report", cfg: func(c *rigConfig) { c.device.Pairs = 4; c.options.Features = not(spec.FeatureHashReport) }},
		{name: "mq alone", cfg: func(c *rigConfig) { c.device.Pairs = 4; c.options.Features = not(spec.FeatureRSS) }},
		{name: "split, one vector", cfg: func(c *rigConfig) { c.device.Pairs = 4; c.options.Features = not(packed); c.vectors = 1 }},
		{name: "sixteen, eight vectors", cfg: func(c *rigConfig) { c.device.Pairs = 16; c.vectors = 8 }},
		{name: "legacy", cfg: func(c *rigConfig) { c.device.Pairs = 4; c.legacy = true; c.device.Size = 512 }},
	} {
		if slowBuild && !full() && i != 0 {
			continue
		}
		v.which = queueSituations
		v.run(t)
	}
}

// ringCells are what rings can be like. With TestConformance and TestConformanceSplit, the first have every pair of order, kind,
// merging, indirect tables and event indices together at least once; BAREWIRE_FULL=1 has all.
var ringCells = []struct {
	name string
	not  spec.Features
	cfg  func(*rigConfig)
}{
	{"packed, any order, no indirect", inOrder | indirect, func(c *rigConfig) { c.device.Order = virtionet.Shuffled }},
	{"split, no mrg, no event index, any order", packed | mrg | eventIdx | inOrder, func(c *rigConfig) { c.device.Order = virtionet.Shuffled }},
	{"packed, no mrg, no event index", mrg | eventIdx, nil},
	{"packed, no indirect, no event index, any order", indirect | eventIdx | inOrder, nil},
	{"split, no mrg, no indirect", packed | mrg | indirect, nil},
	{"packed of odd size", 0, func(c *rigConfig) { c.device.Size = 777 }},
	{"legacy, header of its own", spec.FeatureAnyLayout, func(c *rigConfig) { c.legacy = true; c.device.Size = 512 }},
	{"packed, any order, no mrg", inOrder | mrg, func(c *rigConfig) { c.device.Order = virtionet.Shuffled }},
	{"split, no indirect", packed | indirect, nil},
	{"split, nothing", packed | inOrder | mrg | indirect | eventIdx, nil},
	{"split, notification data", packed, nil},
	{"no notification data, no ring reset", spec.FeatureNotificationData | spec.FeatureRingReset, func(c *rigConfig) { c.noResets = true }},
	{"split, whose queue is short", packed, func(c *rigConfig) { c.device.Size = 300 }},
	{"legacy, nothing", inOrder | mrg | indirect | eventIdx | spec.FeatureAnyLayout, func(c *rigConfig) { c.legacy = true; c.device.Size = 512 }},
	{"little at a step", 0, func(c *rigConfig) { c.device.MaxStep = 1 }},
	{"a device that polls its time", packed, func(c *rigConfig) { c.device.Timing = virtionet.Timing{Fetch: 4000, Used: 9000} }},
}

// TestConformanceRings runs what depends on rings on kinds of them.
func TestConformanceRings(t *testing.T) {
	cells := ringCells
	switch {
	case full():
	case slowBuild:
		cells = cells[:1] // what races there are shows in any of them
	default:
		cells = cells[:7]
	}
	for _, cell := range cells {
		variant{name: cell.name, which: ringSituations, cfg: func(c *rigConfig) {
			c.options.Features.Not = cell.not
			if cell.cfg != nil {
				cell.cfg(c)
			}
		}}.run(t)
	}
}

// TestConformanceWithoutEachFeature takes each feature away that the driver would take, alone: it does without.
func TestConformanceWithoutEachFeature(t *testing.T) {
	taken := 0
	for _, name := range spec.FeatureNames() {
		f, err := spec.FeatureByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if f == spec.FeatureVersion1 || f&virtio.Understood == 0 {
			continue
		}
		if taken++; slowBuild && !full() && taken%12 != 1 {
			continue
		}
		variant{name: name, which: without(f), cfg: func(c *rigConfig) { c.options.Features.Not = f; c.device.Pairs = 2 }}.run(t)
	}
}

// without are the situations that may go another way when a feature is missing. BAREWIRE_FULL=1 has them all each time.
func without(f spec.Features) *situations {
	const all, offloads, rings, control = "InfoMakesSense OneFrame ", "ChecksumsOn FramesAreCut LongestFramesAreCut ", "ArmAndWait StopWithFrames ", "Filters LinkDown Restart "
	switch {
	case full():
		return &situations{all + offloads + rings + control}
	case f&(spec.FeatureCSum|spec.FeatureGuestCSum|spec.FeatureGuestTSO4|spec.FeatureGuestTSO6|spec.FeatureGuestECN|
		spec.FeatureHostTSO4|spec.FeatureHostTSO6|spec.FeatureHostECN|spec.FeatureCtrlGuestOffloads) != 0:
		return &situations{all + offloads}
	case f&(spec.FeatureMrgRxBuf|spec.FeatureIndirectDesc|spec.FeatureEventIdx|spec.FeatureRingPacked|spec.FeatureInOrder|
		spec.FeatureNotificationData|spec.FeatureNotifConfigData|spec.FeatureRingReset|spec.FeatureAnyLayout) != 0:
		return &situations{all + rings}
	}
	return &situations{all + control}
}

// TestAnyInterleavingKeepsOrder is the property that every driver has to have: whatever the order of steps, the same frames
// arrive in the same order.
func TestAnyInterleavingKeepsOrder(t *testing.T) {
	n := 160
	switch {
	case full() && slowBuild:
		n = 400
	case full():
		n = 5000
	case slowBuild:
		n = 12
	}
	nictest.TestSeeds(t, openBench, 1, n)
}

// slowBuild says that every access is checked, in which all of this takes long. The variants are the same code, of which races and
// stale buffers show in any of them.
const slowBuild = raceBuild || mbuf.Checking

// full says whether the long runs are wanted.
func full() bool { return os.Getenv("BAREWIRE_FULL") != "" }
