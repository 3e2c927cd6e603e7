package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMain lets the test's own program be the front end that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "frontend" {
		main()
		return
	}
	os.Exit(m.Run())
}

// testLab is a lab without huge pages, which others may take while it is at work.
func testLab(t *testing.T) *lab {
	t.Helper()
	l, err := newLab(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.huge = false
	return l
}

// TestEveryFrameIsCountedOnBothSides moves 10⁵ frames in each way, by each front end. What it takes is looked at by nobody.
func TestEveryFrameIsCountedOnBothSides(t *testing.T) {
	l := testLab(t)
	for _, ours := range []bool{false, true} {
		for _, ring := range []string{"split", "packed"} {
			for _, mode := range []string{"tx", "rx", "io"} {
				t.Run(fmt.Sprintf("%s %s %s", map[bool]string{true: "ours", false: "DPDK"}[ours], ring, mode), func(t *testing.T) {
					c := cell{ring: ring, mode: mode, burst: 32, rounds: 400, frames: 256}
					r, stderr, err := l.run(t.Context(), ours, c)
					if err != nil {
						t.Fatal(err)
					}
					if err := r.check(400 * 256); err != nil {
						t.Error(err)
					}
					if len(r.rounds) != 400 {
						t.Errorf("%d rounds; %s", len(r.rounds), stderr)
					}
				})
			}
		}
	}
}

func TestAFrontEndThatCannotStartIsAnError(t *testing.T) {
	l := testLab(t)
	for _, ours := range []bool{false, true} {
		if _, _, err := l.run(t.Context(), ours, cell{"split", "tx", longestRun + 1, 1, 1}); err == nil || !strings.Contains(err.Error(), "burst or frames out of range") {
			t.Errorf("ours %v: %v", ours, err)
		}
	}
	l.dir += "/absent"
	if _, _, err := l.run(t.Context(), true, cell{"split", "tx", 1, 1, 1}); err == nil || !strings.Contains(err.Error(), "back end") {
		t.Errorf("without a back end: %v", err)
	}
}

func TestWithoutDPDKItIsSaidWhatToInstall(t *testing.T) {
	t.Setenv("PKG_CONFIG_LIBDIR", t.TempDir())
	if err := compile(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "apt-get install gcc pkg-config libdpdk-dev") {
		t.Errorf("without the headers: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := compile(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no gcc") {
		t.Errorf("without a compiler: %v", err)
	}
}

func TestResultsThatDoNotAddUp(t *testing.T) {
	r, err := parseResult("noise\nresult 4 240 4 240 10 20.5\n")
	if err != nil || len(r.rounds) != 2 || r.rounds[1] != 20.5 || r.check(4) != nil {
		t.Fatalf("%+v, %v, %v", r, err, r.check(4))
	}
	for line, want := range map[string]string{
		"result 4 240 4 240 1": "4 of 5 frames",
		"result 5 300 4 240 1": "the back end 4",
		"result 5 300 5 301 1": "301",
		"result 5 310 5 310 1": "all are of 60",
	} {
		r, err := parseResult(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.check(5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for _, bad := range []string{"", "result 1 2 3", "result 1 2 3 4", "result 1 2 3 x 1", "result 1 2 3 4 x"} {
		if _, err := parseResult(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestValuesAreGroupsOfRounds(t *testing.T) {
	// A driver that frees every other round: half of the rounds cost 0, half 2048. Then a disturbance, and a group that is not whole.
	var r result
	for i := range 5 * roundsPerValue {
		r.rounds = append(r.rounds, float64(i%2)*2048)
	}
	r.rounds[3] = 1e9
	r.rounds = append(r.rounds, 1e9)
	if got := r.perFrame(256); got != 4 {
		t.Errorf("%v ns a frame, want 4", got)
	}
	if got := (result{}).perFrame(256); got != 0 {
		t.Errorf("of no rounds: %v", got)
	}
	if got := (result{rounds: []float64{256, 768}}).perFrame(256); got != 2 {
		t.Errorf("of two rounds: %v", got)
	}
}

func TestRatiosAreOfRunsSideBySide(t *testing.T) {
	r := ratios([]float64{10, 20, 30}, []float64{20, 40, 0})
	if got := spread(r, 2); len(r) != 2 || got != "0.50 (0.50 to 0.50)" {
		t.Errorf("%v, %s", r, got)
	}
	if got := spread([]float64{3, 1, 2}, 1); got != "2.0 (1.0 to 3.0)" {
		t.Error(got)
	}
	if spread(nil, 1) != "-" || spread([]float64{7}, 0) != "7" || median([]float64{4, 1, 2, 3}) != 2 {
		t.Error("of none, of one, of four")
	}
}

func TestInstructionsAreFoundInWhatValgrindPrints(t *testing.T) {
	if n, err := instructionRefs("==7== \n==7== I   refs:      1,234,567\n"); err != nil || n != 1234567 {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := instructionRefs("valgrind: failed"); err == nil {
		t.Error("a sum was found")
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	good := options{runs: 1, rounds: roundsPerValue}
	if err := good.parse("packed", "1,32"); err != nil || len(good.bursts) != 2 {
		t.Errorf("%v, %v", good.bursts, err)
	}
	for _, c := range []struct {
		pick, bursts string
		runs, rounds int
	}{{"(", "32", 1, 16}, {"", "", 1, 16}, {"", "0", 1, 16}, {"", "513", 1, 16}, {"", "32", 0, 16}, {"", "32", 1, 15}} {
		o := options{runs: c.runs, rounds: c.rounds}
		if o.parse(c.pick, c.bursts) == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
