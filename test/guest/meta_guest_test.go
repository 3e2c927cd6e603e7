//go:build guest

package guest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// result is what go test says of a test.
type result struct {
	action string // pass, fail or skip
	output string
}

// goTest runs the tests of testdata/meta and returns the results by name.
func goTest(t *testing.T, env ...string) map[string]result {
	t.Helper()
	cmd := exec.Command("go", "test", "-json", "-count=1", "-tags=guest", "./testdata/meta")
	cmd.Env = append(os.Environ(), append([]string{"CGO_ENABLED=0"}, env...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	results := map[string]result{}
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			t.Fatalf("go test -json printed %s%s", line, stderr.Bytes())
		}
		r := results[e.Test]
		switch e.Action {
		case "output":
			r.output += e.Output
		case "pass", "fail", "skip":
			r.action = e.Action
		}
		results[e.Test] = r
	}
	if len(results) < 3 {
		t.Fatalf("go test ran nothing: %s", stderr.Bytes())
	}
	return results
}

// TestGuestFailuresAreReported holds what go test says on the host against what happened in guests.
func TestGuestFailuresAreReported(t *testing.T) {
	tmp, out := t.TempDir(), t.TempDir()
	results := goTest(t, "TMPDIR="+tmp, "META_OUT="+out)
	for _, c := range []struct {
		test, action string
		says         []string
	}{
		{"TestMixed", "fail", []string{"said before", "give each machine a subtest", "everything about this guest is in"}},
		{"TestMixed/passes", "pass", []string{"all is well"}},
		{"TestMixed/fails", "fail", []string{"this is wrong"}},
		{"TestMixed/fails/below", "fail", []string{"and this"}},
		{"TestMixed/is_skipped", "skip", []string{"not today"}},
		{"TestMixed/prints", "pass", []string{"printed without a newline"}},
		{"TestMixed/prints_to_stderr/with_a_slash", "pass", []string{"--- FAIL: TestMixed/passes (0.00s)"}},
		{"TestMixed/parallel", "pass", nil},
		{"TestMixed/parallel/0", "pass", []string{"this is number 0"}},
		{"TestMixed/parallel/2", "pass", []string{"this is number 2"}},
		{"TestAllSkipped", "skip", []string{"nothing here"}},
		{"TestHangs", "fail", nil},
		{"TestHangs/is_done", "pass", nil},
		{"TestHangs/waits_for_ever", "fail", []string{"test timed out after 2s", "meta.waitForEver"}},
		{"TestDies", "fail", []string{"panic: on purpose"}},
		{"TestDies/panics", "fail", nil},
		{"TestLeaves", "fail", []string{"ended with status 0"}},
		{"TestLeaves/exits", "fail", nil},
		{"TestKernelPanics", "fail", []string{"sysrq triggered crash", "kernel panicked"}},
		{"TestKernelPanics/before", "pass", nil},
		{"TestKernelPanics/crashes_the_kernel", "fail", []string{"about to crash"}},
		{"TestNoSuchDevice", "fail", []string{"no-such-device", "ended with status 1"}},
		{"TestNoSuchModule", "fail", []string{"no module no_such_module"}},
		{"TestWrapperFails", "fail", []string{"the wrapper is not content", "status 7"}},
		{"TestRestarts", "pass", nil},
		{"TestRestarts/start_2", "pass", nil},
		{"TestRestarts/an_answer_too_late", "pass", nil},
	} {
		got, ok := results[c.test]
		if !ok {
			t.Errorf("%s: go test does not know it", c.test)
			continue
		}
		if got.action != c.action {
			t.Errorf("%s: %s, want %s; it says\n%s", c.test, got.action, c.action, got.output)
		}
		for _, s := range c.says {
			if !strings.Contains(got.output, s) {
				t.Errorf("%s: it does not say %q but\n%s", c.test, s, got.output)
			}
		}
	}
	if b, err := os.ReadFile(filepath.Join(out, "left.txt")); err != nil || string(b) != "for the host" {
		t.Errorf("what the guest left: %q, %v", b, err)
	}
	kept(t, tmp, results["TestMixed"].output)
}

// TestGuestThatIsInterruptedLeavesNothing stops go test as Ctrl-C does.
func TestGuestThatIsInterruptedLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	cmd := exec.Command("go", "test", "-v", "-count=1", "-tags=guest", "-run=^TestIsInterrupted$", "./testdata/meta")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "TMPDIR="+tmp, "META_INTERRUPTED=1", "BAREWIRE_GUEST_VERBOSE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	lines, stopped := bufio.NewScanner(out), false
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if !stopped && strings.Contains(lines.Text(), "waits to be stopped") {
			stopped = true
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The pipe has ended, so there is nobody left who could write to it.
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("go test: %v; it says\n%s", err, said.String())
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if b, err := exec.Command("ps", "-eo", "args").Output(); err != nil || strings.Contains(string(b), tmp) {
		t.Errorf("there are processes that use %s (%v):\n%s", tmp, err, b)
	}
}

// kept looks at what is kept of guests: of the one that the text names all that is known, and nothing of those that did well.
func kept(t *testing.T, tmp, says string) {
	t.Helper()
	dir := regexp.MustCompile(`about this guest is in (\S+)`).FindStringSubmatch(says)
	if dir == nil {
		t.Fatalf("no directory is named in\n%s", says)
	}
	for name, holds := range map[string]string{
		"command.txt": "qemu-system-x86_64", "console.txt": "", "initrd.txt": "test/test.binary", "kernel.txt": "Linux version", "log.txt": "start 1",
		"output.txt": "=== RUN", "out/left.txt": "for the host",
	} {
		b, err := os.ReadFile(filepath.Join(dir[1], name))
		if err != nil || !strings.Contains(string(b), holds) {
			t.Errorf("%s: %v, or it does not hold %q", name, err, holds)
		}
	}
	// One for each guest that failed: Mixed, Hangs, Dies, Leaves, KernelPanics, NoSuchDevice, WrapperFails.
	if dirs, err := filepath.Glob(filepath.Join(tmp, "guest-*")); err != nil || len(dirs) != 7 {
		t.Errorf("%d directories of guests were kept, want 7: %v", len(dirs), err)
	}
}
