package mbuf_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bare.wire/mbuf"
)

// buildMisuse builds testdata/misuse with the arguments given and returns the program.
func buildMisuse(t *testing.T, env []string, args ...string) string {
	t.Helper()
	// The go command does not see that the program is made of these, and would keep a result that no longer holds. Reading
	// them tells it.
	for _, pattern := range []string{"*.go", "testdata/misuse/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, f := range files {
			if _, err := os.ReadFile(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	program := filepath.Join(t.TempDir(), "misuse")
	cmd := exec.Command("go", append(append([]string{"build", "-o", program}, args...), "./testdata/misuse")...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

// misuse runs the program. It must fail and say all of says; with nothing to say it must succeed.
func misuse(t *testing.T, program, mode string, says ...string) {
	t.Helper()
	out, err := exec.Command(program, mode).CombinedOutput()
	if len(says) == 0 {
		if err != nil {
			t.Errorf("%s: %v\n%s", mode, err, out)
		}
		return
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() <= 0 {
		t.Errorf("%s: %v, want a failure\n%s", mode, err, out)
	}
	for _, s := range says {
		if !strings.Contains(string(out), s) {
			t.Errorf("%s does not say %q:\n%s", mode, s, out)
		}
	}
}

// TestSanitizerReportsMisuse sees each misuse fail in a program of its own, built with the tag mbufcheck, with a report that
// names the place.
func TestSanitizerReportsMisuse(t *testing.T) {
	program := buildMisuse(t, nil, "-tags", "mbufcheck")
	for _, test := range []struct {
		mode string
		says []string
	}{
		{"ok", nil},
		{"uaf", []string{"mbufcheck: use after free: Bytes", "main.newFrame", "main.useAfterFree"}},
		{"write", []string{"mbufcheck: write after free: byte 195", "main.writeAfterFree"}},
		{"doublefree", []string{"mbufcheck: double free", "main.newFrame", "main.doubleFree"}},
		{"sealed", []string{"mbufcheck: a frame changed between Send and its completion", "main.newFrame"}},
		{"leak", []string{"1 of 8 buffers", "leaked from", "main.newFrame", "main.leak"}},
	} {
		t.Run(test.mode, func(t *testing.T) { misuse(t, program, test.mode, test.says...) })
	}
}

// TestRaceDetectorSeesPacketMemory: a payload that one goroutine writes and another reads is a data race like any other.
func TestRaceDetectorSeesPacketMemory(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil && !mbuf.RaceBuild {
		// The detector is linked in by a C compiler. The run of the tests under the detector has one, and runs this too.
		t.Log("no gcc: left to the run under the race detector")
		return
	}
	program := buildMisuse(t, []string{"CGO_ENABLED=1"}, "-race")
	misuse(t, program, "ok")
	misuse(t, program, "race", "WARNING: DATA RACE", "main.readPayload", "main.writePayload")
}

// TestPlainBuildReportsTheLeak, if without the place.
func TestPlainBuildReportsTheLeak(t *testing.T) {
	program := buildMisuse(t, nil)
	misuse(t, program, "ok")
	misuse(t, program, "leak", `close mbuf pool "misused": 1 of 8 buffers`)
}
