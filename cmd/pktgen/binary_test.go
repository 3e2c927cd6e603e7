package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"bare.wire/clock"
)

// These tests run the program that a user builds, as a user who is not root and has no huge pages.

// nobody is the uid and gid of a user without rights.
const nobody = 65534

// build compiles pktgen once for the tests here.
func build(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pktgen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "pktgen")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// run is one run with -o json. interrupt, when set, is called once the program runs.
func run(t *testing.T, program string, interrupt func(*os.Process), args ...string) (code int, result result) {
	t.Helper()
	home := t.TempDir()
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"run", "-o", "json"}, args...)...)
	cmd.Env = []string{"HOME=" + home}
	cmd.Dir = "/"
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if interrupt != nil {
		interrupt(cmd.Process)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", args, err, &stdout, &stderr)
	}
	return cmd.ProcessState.ExitCode(), result
}

// result is what these tests look at of a report.
type result struct {
	Valid, Complete bool
	Reasons         []string
	Streams         []struct {
		Tx, Rx struct{ Packets uint64 }
		Loss   struct{ Lost, Reordered, Duplicates, Corrupt int64 }
	}
}

func (r result) check(t *testing.T) {
	t.Helper()
	s := r.Streams[0]
	if s.Tx.Packets == 0 || s.Tx.Packets != s.Rx.Packets || s.Loss.Lost != 0 || s.Loss.Reordered != 0 || s.Loss.Duplicates != 0 || s.Loss.Corrupt != 0 {
		t.Errorf("sent %d, received %d, %+v: a clean wire loses nothing", s.Tx.Packets, s.Rx.Packets, s.Loss)
	}
}

func TestTheProgramAsAUserRunsIt(t *testing.T) {
	program := build(t)
	t.Run("virtual time", func(t *testing.T) {
		code, r := run(t, program, nil, "sim:?clock=virtual")
		if r.check(t); code != 0 || !r.Valid || r.Streams[0].Tx.Packets != 100_000 {
			t.Errorf("exit code %d, valid %v, %d sent; want ten seconds at 10 kpps", code, r.Valid, r.Streams[0].Tx.Packets)
		}
	})
	t.Run("real time", func(t *testing.T) {
		code, r := run(t, program, nil, "-t", "2s")
		r.check(t)
		// A machine that stands still makes the run invalid, with a reason, and nothing else.
		if code != 0 && code != 5 || r.Valid != (code == 0) || r.Valid != (len(r.Reasons) == 0) || !r.Complete {
			t.Errorf("exit code %d, valid %v, complete %v, reasons %q", code, r.Valid, r.Complete, r.Reasons)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		code, r := run(t, program, func(p *os.Process) {
			waitForStart(t, p)
			if err := p.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}, "-t", "1h")
		if r.check(t); code != 130 || r.Complete {
			t.Errorf("exit code %d, complete %v", code, r.Complete)
		}
	})
}

// waitForStart waits until the program has had an eventfd, which it waits on while it runs, for a second: it is up, and
// handles signals.
func waitForStart(t *testing.T, p *os.Process) {
	t.Helper()
	clk := clock.Real()
	for seen, tries := 0, 0; seen < 10; tries++ {
		if tries > 600 {
			t.Fatal("the program does not start within a minute")
		}
		if err := clk.Sleep(t.Context(), 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.Pid), "fd", "*"))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(links, func(l string) bool {
			to, err := os.Readlink(l)
			return err == nil && to == "anon_inode:[eventfd]"
		}) {
			seen++
		}
	}
}
