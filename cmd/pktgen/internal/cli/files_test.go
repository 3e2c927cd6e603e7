package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bare.wire/cmd/pktgen/internal/engine"
	"bare.wire/device"
)

// ended runs a command whose context has ended before, and returns how it ended.
func ended(args ...string) (Code, string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var log bytes.Buffer
	code := (&app{out: io.Discard, log: &log, open: device.OpenSet}).main(ctx, args)
	return code, log.String()
}

func TestInterruptionBeforeTheStartIsNoFailure(t *testing.T) {
	in := record(t, shot{0, numbered(0, 60)})
	for _, args := range [][]string{{"run", "-n", "1", "sim:"}, {"run", "-n", "1", virtual}, {"replay", in, virtual}} {
		if code, log := ended(args...); code != Interrupted || strings.Count(log, "\n") != 1 || !strings.Contains(log, "interrupted") {
			t.Errorf("%v: code %d: %s", args, code, log)
		}
	}
	// One that comes while the ports start.
	ctx, cancel := context.WithCancel(context.Background())
	a := &app{out: io.Discard, log: io.Discard, open: func(ctx context.Context, opt device.Options, uris ...string) (*device.Set, error) {
		defer cancel()
		return device.OpenSet(ctx, opt, uris...)
	}}
	if code := a.main(ctx, []string{"run", "-n", "1", "sim:"}); code != Interrupted {
		t.Errorf("while the ports start: code %d", code)
	}
	// A failure that has nothing to do with the end of the context stays one.
	a.open = func(context.Context, device.Options, ...string) (*device.Set, error) {
		return nil, os.NewSyscallError("open", syscall.EACCES)
	}
	if code := a.main(ctx, []string{"run"}); code != Environment {
		t.Errorf("a failure at the time of an interruption: code %d", code)
	}
}

// interrupted runs a command and interrupts it when begun has returned.
func interrupted(begun func(), args ...string) (Code, string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		begun()
		cancel()
	}()
	var log bytes.Buffer
	code := (&app{out: io.Discard, log: &log, open: device.OpenSet}).main(ctx, args)
	return code, log.String()
}

// Nobody writes to the pipe that is to be replayed, or reads from the one a dry run writes to beyond what it holds.
func TestInterruptionEndsTheWaitForAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var writer *os.File
	if code, log := interrupted(func() {
		var err error
		if writer, err = os.OpenFile(pipe, os.O_WRONLY, 0); err != nil { // waits for the reader
			t.Error(err)
		}
	}, "replay", pipe); code != Interrupted {
		t.Errorf("replay: code %d: %s", code, log)
	}
	defer writer.Close()
	pipe2 := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe2, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe2, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if code, log := interrupted(func() {
		if _, err := reader.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}, "run", "-n", "100k", "--dry-run="+pipe2); code != Interrupted {
		t.Errorf("dry run: code %d: %s", code, log)
	}
}

func TestInterruptionBeforeADryRunMakesNoFile(t *testing.T) {
	dir := t.TempDir()
	for range 100 {
		if code, log := ended("run", "-n", "1", "--dry-run="+filepath.Join(dir, "dry.pcap")); code != Interrupted {
			t.Fatalf("code %d: %s", code, log)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMachineThatRefusesAtTheStartIsNoDeviceFailure(t *testing.T) {
	for code, cause := range map[Code]error{Environment: syscall.EMFILE, Device: syscall.EIO} {
		err := verdict(nil, fmt.Errorf("%w: start: %w", engine.ErrDevice, os.NewSyscallError("memfd_create", cause)))
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != code {
			t.Errorf("%v: %v, want code %d", cause, err, code)
		}
	}
}

// full is a writer that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputThatCannotBeWrittenIsNoUsageError(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"run", "--dry-run"}, {"run", "-n", "1", virtual}, {"run", "-n", "1", "-o", "json", virtual}, {"run", "-n", "1", "-o", "ndjson", virtual}} {
		var log bytes.Buffer
		code := (&app{out: full{}, log: &log, open: device.OpenSet}).main(context.Background(), args)
		if code != Device && code != Environment || !strings.Contains(log.String(), "no space left") || strings.Contains(log.String(), "--help") {
			t.Errorf("%v: code %d: %s", args, code, log.String())
		}
	}
}

func TestPipeWithoutAReaderIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--pcap-tx", "--pcap-rx", "--out", "--dry-run"} {
		var log bytes.Buffer
		code := (&app{out: io.Discard, log: &log, open: device.OpenSet}).main(context.Background(), []string{"run", "-n", "10", flag + "=" + pipe, virtual})
		if code != Environment || !strings.Contains(log.String(), "start its reader first") {
			t.Errorf("%s: code %d: %s", flag, code, log.String())
		}
	}
}

func TestOneFileForTwoPurposesIsRefused(t *testing.T) {
	dir := t.TempDir()
	in := record(t, shot{0, numbered(0, 60)})
	before, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	alias := filepath.Join(dir, "alias.pcap")
	if err := os.Symlink(in, alias); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(dir, "new.pcap")
	for _, args := range [][]string{
		{"run", "-n", "1", "--pcap-tx", fresh, "--pcap-rx", dir + "/./new.pcap", virtual},
		{"run", "-n", "1", "--pcap-rx", fresh, "--out", fresh, virtual},
		{"replay", "--pcap-rx", in, in, virtual},
		{"replay", "--pcap-tx", alias, in, virtual},
		{"replay", "--out", in, in, virtual},
	} {
		var log bytes.Buffer
		code := (&app{out: io.Discard, log: &log, open: device.OpenSet}).main(context.Background(), args)
		if code != Usage || !strings.Contains(log.String(), "would destroy the other") {
			t.Errorf("%v: code %d: %s", args, code, log.String())
		}
	}
	after, err := os.ReadFile(in)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the capture to replay has changed (%v)", err)
	}
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused command made a file: %v", err)
	}
	if code := (&app{out: io.Discard, log: io.Discard, open: device.OpenSet}).main(context.Background(),
		[]string{"run", "-n", "1", "--pcap-tx", os.DevNull, "--pcap-rx", os.DevNull, virtual}); code != OK {
		t.Errorf("%s twice: code %d", os.DevNull, code)
	}
}
