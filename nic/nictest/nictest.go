// Package nictest is the conformance suite for network card drivers: whoever writes a [nic.Port] runs [TestPort] on it.
//
//	func TestConformance(t *testing.T) {
//		nictest.TestPort(t, func(t testing.TB, seed uint64) *nictest.Bench {
//			a, b := openPairOnOneWire(t, seed)
//			return &nictest.Bench{A: a, B: b, Clock: clk, NewPool: newPoolInTheirSpace, Settle: settle}
//		})
//	}
//
// The suite sees two ports that a wire joins, and drives both by the contract in package nic alone. Each of its tests is a
// situation: a ring that is full, a pool that is dry, a card that is pulled out while a frame is on its way. Whatever the
// situation, it checks the frames byte for byte and in order, the counters, that every buffer is back in its pool at the
// end, and that the device (when it is one that can tell) has nothing to hold against the driver.
//
// Time is the Bench's clock. On a virtual one a run is exact and the same every time; no test looks at any other clock.
package nictest

import (
	"fmt"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// Bench is two ports, open and not started, at the two ends of one wire that loses nothing. A function that is nil stands
// for something that cannot be done on this bench; the tests that need it pass, and say in the log what they have not looked at.
type Bench struct {
	A, B nic.Port
	// Clock is the ports' clock. Sleeping on it lets the devices work.
	Clock clock.Clock
	// NewPool makes a pool in the ports' address space: it fills in Config.Space.
	NewPool func(mbuf.Config) (*mbuf.Pool, error)
	// ForeignPool makes a pool that the ports cannot reach.
	ForeignPool func(mbuf.Config) (*mbuf.Pool, error)
	// Late is how late a wake may come on a bench in real time; 0: the clock is virtual, and everything exact.
	Late time.Duration
	// Settle lets everything that is under way arrive: frames sent, a link that is about to come up.
	Settle func()
	// MinFrame is what the device pads shorter frames to, with zeros, bytes without FCS; 0: it does not.
	MinFrame int
	// Misuse is what the device has to hold against the drivers so far, a line each.
	Misuse func() []string
	// Lost is for a device that counts nothing: how many frames for a port it has dropped because a queue had no buffers. No counts
	// of the port's are looked at then but those that a driver can make by itself.
	Lost func(nic.Port) uint64
	// SilentOnBad says that the device tells of right checksums, and nothing of wrong ones.
	SilentOnBad bool
	// Remove pulls a port's device out.
	Remove func(nic.Port)
	// SetLink takes the wire off, and puts it back.
	SetLink func(up bool)
	// Close gives back what is behind the ports. It is called after the ports' Close, before the pools'.
	Close func() error
}

// Opener opens a bench. The seed decides whatever the bench draws, delays and interleavings among them; 0 stands for the
// default. What fails, fails the test.
type Opener func(t testing.TB, seed uint64) *Bench

// situations are the subtests of TestPort.
var situations = []struct {
	name string
	test func(*run)
}{
	{"InfoMakesSense", testInfo},
	{"FramesOfEveryLength", testLengths},
	{"BurstsOfEverySize", testBursts},
	{"RingsOfEverySize", testRingSizes},
	{"RingSizesThatAreRefused", testRingSizesRefused},
	{"ConfigurationsThatAreRefused", testConfigsRefused},
	{"OneFrameThenIdle", testOneThenIdle},
	{"RingFullKeepsFrames", testRingFull},
	{"RingFullOfSegments", testRingFullSegments},
	{"FramesThatCanNeverBeSent", testUnsendable},
	{"ChecksumsOnSending", testTxChecksums},
	{"TagIsInserted", testTxVLAN},
	{"FramesAreCut", testTSO},
	{"LongestFramesAreCut", testTSOLongest},
	{"RingFullInAContext", testTSORingFull},
	{"StopWhileCutting", testTSOStop},
	{"RequestsThatMakeNoSense", testBadOffloads},
	{"HeadersOfOthersAreNotWritten", testSharedHeaders},
	{"TooLongToBeCut", testTSOTooLong},
	{"OffloadsThatAreOff", testOffloadsOff},
	{"RequestsOfAllKindsMixed", testOffloadsMixed},
	{"ChecksumsOnReception", testRxChecksums},
	{"ChecksumsAndTagsOnReception", testRxAllNotes},
	{"SegmentsComeJoined", testJoined},
	{"GatherOfManySegments", testGather},
	{"SharedBuffersAreSent", testShared},
	{"ScatterOverSmallBuffers", testScatter},
	{"JumboFrames", testJumbo},
	{"LongBuffers", testLongBuffers},
	{"HalfReceivedAtStop", testHalfReceived},
	{"PoolRunsDry", testPoolDry},
	{"FewerBuffersThanDescriptors", testFewBuffers},
	{"StopWithFramesInFlight", testStopInFlight},
	{"StopWithLinkDown", testStopLinkDown},
	{"StartStopManyTimes", testStartStop},
	{"RestartWithAnotherConfiguration", testRestart},
	{"CallsInTheWrongState", testWrongState},
	{"StatisticsAreExact", testStats},
	{"StatisticsNeverGoBack", testStatsMonotonic},
	{"ManyQueues", testManyQueues},
	{"RSSKeepsFlowsTogether", testRSS},
	{"RSSTableAndKeyOfOnesOwn", testRSSCustom},
	{"RSSTypesThatAreOff", testRSSTypes},
	{"FullQueueDropsItsOwn", testDropWhenFull},
	{"FullQueueBlocksOthers", testBlockWhenFull},
	{"AddressFilters", testAddressFilters},
	{"MulticastFilters", testMulticastFilters},
	{"VLANFilters", testVLANFilters},
	{"TooManyAddresses", testTooManyAddresses},
	{"FiltersOutliveRestart", testFiltersOutliveRestart},
	{"VLANTagIsStripped", testVLANStrip},
	{"Loopback", testLoopback},
	{"ArmAndWait", testArmAndWait},
	{"ArmSeesWhatIsThere", testArmPending},
	{"ArmForSending", testArmTx},
	{"NoWakeIsLost", testNoLostWake},
	{"IdleWorkers", testIdle},
	{"InterruptsAreModerated", testModeration},
	{"LinkChangesWake", testLinkWakes},
	{"PauseFrames", testPause},
	{"LinkDownAndUp", testLink},
	{"Removal", testRemoval},
	{"RemovalWakesSleepers", testRemovalWakes},
	{"NothingIsAllocated", testAllocs},
}

// TestPort runs the suite, each situation on a bench of its own.
func TestPort(t *testing.T, open Opener) {
	TestSome(t, open, func(string) bool { return true })
}

// TestSome runs the situations that chosen picks by their names: for benches on which all of them take too long.
func TestSome(t *testing.T, open Opener, chosen func(situation string) bool) {
	for _, s := range situations {
		if !chosen(s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			r := begin(t, open, 0)
			s.test(r)
			r.end()
		})
	}
}

// TestSeeds runs n random interleavings of sending, receiving and waiting, seeds first … first+n−1; each has to deliver the
// same frames in order. A failure names its seed.
func TestSeeds(t *testing.T, open Opener, first uint64, n int) {
	// In groups, each a test of its own: what a run leaves to be cleaned up is kept until its test ends.
	const group = 50
	for end := first + uint64(n); first < end && !t.Failed(); first += group {
		last := min(first+group, end)
		t.Run(fmt.Sprintf("%d to %d", first, last-1), func(t *testing.T) {
			for seed := first; seed < last && !t.Failed(); seed++ {
				testSeed(t, open, seed)
			}
		})
	}
}

func testSeed(t *testing.T, open Opener, seed uint64) {
	r := begin(t, open, seed)
	defer r.explain("seed %d: run TestSeeds with first %d and n 1 to see it again", seed, seed)
	r.interleave(seed)
	r.end()
}

const (
	defaultMaxFrame = 1518 // nic.Config.MaxFrame
	minSend         = 14   // an Ethernet header
	moment          = 100 * time.Nanosecond
	patience        = 200000 // moments that anything may take
)
