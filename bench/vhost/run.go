package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lab is where the programs are.
type lab struct {
	dir  string
	self string // this program, which is also our front end
	huge bool   // huge pages are used
	cpu  int    // of the front end, and of the back end while they take turns
	peer int    // of the back end while both run at once
}

// cell is one thing that is measured.
type cell struct {
	ring   string // "split", "packed"
	mode   string // "tx", "rx", "io"; "sink", "flood": both at once
	burst  int
	rounds int
	frames int // a round
}

func (c cell) String() string { return fmt.Sprintf("%s %s %d", c.ring, c.mode, c.burst) }

func (c cell) both() bool { return c.mode == "sink" || c.mode == "flood" }

// dpdkArguments are what DPDK's port is opened with beside the socket. Mergeable buffers and use in order are its defaults.
func (c cell) dpdkArguments() string {
	if c.ring == "packed" {
		return ",packed_vq=1"
	}
	return ""
}

// features are those that ours may take (spec.ParseRestriction).
func (c cell) features() string {
	if c.ring == "packed" {
		return ""
	}
	return "-ring_packed"
}

// enough is how many huge pages of 2 MiB front end and back end take together.
const enough = 56

const pagesDir = "/sys/kernel/mm/hugepages/hugepages-2048kB/"

func readPages(name string) int {
	text, err := os.ReadFile(pagesDir + name)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
}

// hugePages says whether there are enough free ones.
func hugePages() bool { return readPages("free_hugepages") >= enough }

// setAsideHugePages sees to it that there are enough, where this process may, and returns what gives them back.
func setAsideHugePages() (restore func()) {
	if hugePages() {
		return func() {}
	}
	before := readPages("nr_hugepages")
	set := func(n int) error { return os.WriteFile(pagesDir+"nr_hugepages", []byte(strconv.Itoa(n)), 0) }
	if set(before+enough) != nil {
		return func() {}
	}
	return func() { _ = set(before) }
}

// eal are the options that DPDK's programs are started with.
func (l *lab) eal(cpu int) []string {
	args := []string{fmt.Sprintf("--lcores=0@%d", cpu), "--no-pci", "--no-telemetry", "--log-level=3"}
	if l.huge {
		return append(args, "--in-memory", "--single-file-segments", "-m", "48", "--")
	}
	return append(args, "--no-shconf", "--no-huge", "-m", "64", "--")
}

// program is a process of a run.
type program struct {
	*exec.Cmd
	errors bytes.Buffer
}

func (l *lab) program(ctx context.Context, turn *os.File, name string, args ...string) *program {
	p := &program{Cmd: exec.CommandContext(ctx, name, args...)}
	p.ExtraFiles = []*os.File{turn} // descriptor 3
	p.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+l.dir)
	p.Stderr = &p.errors
	p.WaitDelay = 5 * time.Second
	return p
}

func (p *program) failed(what string, err error) error {
	if s := strings.TrimSpace(p.errors.String()); s != "" {
		return fmt.Errorf("%s: %w: %s", what, err, s)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// run measures a cell with one of the front ends. wrap is a command that the front end is run by, or empty.
func (l *lab) run(ctx context.Context, ours bool, c cell, wrap ...string) (r result, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	turns, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return r, "", fmt.Errorf("a socket pair: %w", err)
	}
	front, back := os.NewFile(uintptr(turns[0]), "turns"), os.NewFile(uintptr(turns[1]), "turns")
	defer func() { _, _ = front.Close(), back.Close() }()

	socket := filepath.Join(l.dir, "vhost.sock")
	_ = os.Remove(socket) // of an earlier run that was ended
	cpu := l.cpu
	if c.both() {
		cpu = l.peer
	}
	be := l.program(ctx, back, filepath.Join(l.dir, "backend"), append(l.eal(cpu), socket)...)
	out, err := be.StdoutPipe()
	if err != nil {
		return r, "", err
	}
	if err := be.Start(); err != nil {
		return r, "", fmt.Errorf("the back end: %w", err)
	}
	if err := waitReady(out); err != nil {
		cancel()
		_ = be.Wait()
		return r, "", be.failed("the back end", err)
	}
	_ = back.Close() // the back end ends when the front end's side is closed everywhere

	fe := l.frontEnd(ctx, front, ours, c, socket, wrap)
	text, err := fe.Output()
	_ = front.Close()
	if err != nil {
		cancel()
		_ = be.Wait()
		return r, "", fe.failed("the front end", fmt.Errorf("%w %s", err, be.errors.String()))
	}
	if err := be.Wait(); err != nil {
		return r, "", be.failed("the back end", err)
	}
	r, err = parseResult(string(text))
	return r, fe.errors.String(), err
}

func (l *lab) frontEnd(ctx context.Context, turn *os.File, ours bool, c cell, socket string, wrap []string) *program {
	args := wrap
	if ours {
		args = append(args, l.self, "frontend", strconv.Itoa(l.cpu), socket, c.features())
	} else {
		args = append(append(args, filepath.Join(l.dir, "frontend")), l.eal(l.cpu)...)
		args = append(args, socket, c.dpdkArguments())
	}
	args = append(args, c.mode, strconv.Itoa(c.burst), strconv.Itoa(c.rounds), strconv.Itoa(c.frames))
	return l.program(ctx, turn, args[0], args[1:]...)
}

// waitReady reads until a back end can be connected to, and lets it write on.
func waitReady(out io.Reader) error {
	s := bufio.NewScanner(out)
	for s.Scan() {
		if s.Text() == "ready" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return nil
		}
	}
	return errors.Join(errors.New("ended before it was ready"), s.Err())
}

// processors are the last two that this process may use, the same one twice if there is no other.
func processors() (cpu, peer int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, fmt.Errorf("which processors there are: %w", err)
	}
	cpu, peer = -1, -1
	for i := len(set)*64 - 1; i >= 0; i-- {
		switch {
		case !set.IsSet(i):
		case cpu < 0:
			cpu, peer = i, i
		default:
			return cpu, i, nil
		}
	}
	return cpu, peer, nil
}
