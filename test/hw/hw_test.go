package hw

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic/nictest"
)

// notHere are the situations of nictest that need two ports: what one port cannot be, or cannot do to itself.
var notHere = map[string]string{
	"InfoMakesSense":                  "both ends have one address",
	"RestartWithAnotherConfiguration": "the ends differ in what they take for too long",
	"CallsInTheWrongState":            "one end is stopped, the other is not",
	"StatisticsNeverGoBack":           "both ends send",
	"IdleWorkers":                     "both ends send",
	"ArmAndWait":                      "the end that sends wakes the one that sleeps: see EachQueueWakes",
	"PauseFrames":                     "both ends send",
	"Loopback":                        "goes out on the wire too",
	"StopWithLinkDown":                "no cable to pull out", "LinkDownAndUp": "no cable to pull out", "LinkChangesWake": "no cable to pull out",
	"Removal": "nobody pulls the card out", "RemovalWakesSleepers": "nobody pulls the card out",
}

// short are the situations for software cards that are slow: emulated ones, and builds that check every access. The driver's
// own tests have all of them.
const short = "LoopbackIsOn|EachQueueWakes|FramesOfEveryLength|FramesThatCanNeverBeSent|ChecksumsOnSending|FramesAreCut|" +
	"ScatterOverSmallBuffers|StatisticsAreExact"

// own are situations of one port in loopback, beside those of nictest. Nothing goes on without the first.
var own = []struct {
	name string
	test func(*testing.T, *station)
}{
	{"LoopbackIsOn", testLoopbackIsOn},
	{"EachQueueWakes", testEachQueueWakes},
	{"CountersBeyond32Bits", testCountersBeyond32Bits},
}

func TestMain(m *testing.M) {
	address := os.Getenv("PCI")
	if address == "" { // a software card, and nobody to report to
		os.Exit(m.Run())
	}
	status, err := reported(m, address)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hw:", err)
		status = max(status, 3)
	}
	os.Exit(status)
}

// TestCard is the card that PCI names, or a software one.
func TestCard(t *testing.T) {
	for i, s := range own {
		ok := t.Run(s.name, func(t *testing.T) {
			note(t)
			st := newStation(t)
			s.test(t, st)
			st.end()
		})
		if i == 0 && !ok {
			t.Fatal("without loopback nothing more is tried: frames would go out on the wire")
		}
	}
	open := func(t testing.TB, _ uint64) *nictest.Bench {
		note(t)
		return openBench(t)
	}
	nictest.TestSome(t, open, func(situation string) bool {
		if mbuf.Checking && !realCard() && !slices.Contains(strings.Split(short, "|"), situation) {
			return false
		}
		return notHere[situation] == ""
	})
}
