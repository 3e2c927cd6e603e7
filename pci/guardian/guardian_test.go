package guardian

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// driven is the environment variable that makes the test's program a driver, to be killed: of the configuration space that it
// names.
const driven = "BAREWIRE_TEST_DRIVE"

// leaks has it leave its end of the socket to another process, which lives on.
const leaks = "BAREWIRE_TEST_LEAK"

func TestMain(m *testing.M) {
	if name := os.Getenv(driven); name != "" {
		drive(name)
	}
	os.Exit(m.Run())
}

// drive switches DMA on under a guardian, says so, and waits for its end.
func drive(name string) {
	config, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	g, err := Start("test", config)
	if err != nil {
		panic(err)
	}
	mem, err := unix.MemfdCreate("driven", unix.MFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	if _, err := g.Hold(mem); err != nil {
		panic(err)
	}
	if _, err := config.WriteAt([]byte{6, 0}, 4); err != nil {
		panic(err)
	}
	other := 0
	if os.Getenv(leaks) != "" {
		keeper := exec.Command("sleep", "infinity")
		keeper.ExtraFiles = []*os.File{g.sock}
		if err := keeper.Start(); err != nil {
			panic(err)
		}
		other = keeper.Process.Pid
	}
	fmt.Println(g.PID(), other)
	select {}
}

// newConfig is a configuration space with the device's DMA on.
func newConfig(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "config"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b := make([]byte, 4096)
	copy(b, []byte{0x86, 0x80, 0xfb, 0x10, 0x46, 0x01})
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

func command(t *testing.T, config *os.File) uint16 {
	t.Helper()
	var b [2]byte
	if _, err := config.ReadAt(b[:], 4); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint16(b[:])
}

func start(t *testing.T, config *os.File) *Guardian {
	t.Helper()
	g, err := Start("0000:03:00.0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// ended waits for the end of a process that need not be a child.
func ended(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
			return
		}
	}
}

func TestKilledDriverLeavesNoDMABehind(t *testing.T) {
	t.Run("its socket is closed", func(t *testing.T) { testKilled(t, false) })
	t.Run("its socket stays open", func(t *testing.T) { testKilled(t, true) })
}

func testKilled(t *testing.T, leak bool) {
	config := newConfig(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), driven+"="+config.Name())
	if leak {
		cmd.Env = append(cmd.Env, leaks+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid, keeper int
	if _, err := fmt.Fscan(out, &pid, &keeper); err != nil {
		t.Fatal(err)
	}
	if leak {
		defer func() {
			if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}()
	}
	if got := files(t, pid); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "/memfd:driven") }) {
		t.Errorf("the guardian holds %q, and not the memory", got)
	}
	if command(t, config)&4 == 0 {
		t.Error("DMA is off already")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The driver's end is seen although the guardian lives on: it has none of the driver's files.
	if rest, err := bufio.NewReader(out).ReadString(0); rest != "" {
		t.Errorf("output %q, %v", rest, err)
	}
	_ = cmd.Wait()
	ended(t, pid)
	if got := command(t, config); got != 2 {
		t.Errorf("the command register is %#x, want bus master off and the rest as it was", got)
	}
}

// files are what a process has open.
func files(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			list = append(list, to)
		}
	}
	return list
}

func TestGuardianHasNoFilesOfItsParent(t *testing.T) {
	name := filepath.Join(t.TempDir(), "inherited")
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR, 0o600) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	config := newConfig(t)
	g := start(t, config)
	got := files(t, g.PID())
	null := 0
	for _, f := range got {
		switch {
		case f == "/dev/null":
			null++
		case f == config.Name(), strings.HasPrefix(f, "socket:"), strings.HasPrefix(f, "anon_inode:"), strings.HasPrefix(f, "pidfd:"), f == "pipe:":
		default:
			t.Errorf("it has %s open", f)
		}
	}
	if null != 3 {
		t.Errorf("%d of its standard files are /dev/null: %q", null, got)
	}
	if sid, err := unix.Getsid(g.PID()); err != nil || sid != g.PID() {
		t.Errorf("its session is %d, %v: want its own", sid, err)
	}
}

func TestGuardianHoldsAndDrops(t *testing.T) {
	g := start(t, newConfig(t))
	holds := func() int {
		n := 0
		for _, f := range files(t, g.PID()) {
			if strings.HasPrefix(f, "/memfd:held") {
				n++
			}
		}
		return n
	}
	var numbers []uint32
	for range 3 {
		mem, err := unix.MemfdCreate("held", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		n, err := g.Hold(mem)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(mem)
		numbers = append(numbers, n)
	}
	if holds() != 3 {
		t.Errorf("it holds %d of 3", holds())
	}
	if err := g.Drop(numbers[1]); err != nil || holds() != 2 {
		t.Errorf("it holds %d of 2, %v", holds(), err)
	}
	if err := g.Drop(numbers[1]); !errors.Is(err, unix.EINVAL) {
		t.Errorf("what it does not hold is let go: %v", err)
	}
	if _, err := g.Hold(-1); err == nil {
		t.Error("it holds nothing")
	}
}

func TestGuardianIgnoresSignals(t *testing.T) {
	config := newConfig(t)
	g := start(t, config)
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGTSTP, unix.SIGUSR1, unix.SIGPIPE} {
		if err := unix.Kill(g.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	mem, err := unix.MemfdCreate("held", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mem)
	if _, err := g.Hold(mem); err != nil {
		t.Error(err)
	}
	if command(t, config)&4 == 0 {
		t.Error("DMA has been switched off")
	}
}

func TestCloseSeesDMAOff(t *testing.T) {
	config := newConfig(t)
	g := start(t, config)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	<-g.Exited()
	if got := command(t, config); got != 0x142 {
		t.Errorf("the command register is %#x", got)
	}
	if err := g.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
}

func TestDeathOfTheGuardianIsNoticed(t *testing.T) {
	g := start(t, newConfig(t))
	if err := unix.Kill(g.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-g.Exited()
	if _, err := g.Hold(0); err == nil {
		t.Error("the dead hold memory")
	}
	for range 2 {
		if err := g.Close(); err == nil {
			t.Error("the dead have seen that DMA is off")
		}
	}
}

func TestDMAThatDoesNotEndIsAnError(t *testing.T) {
	config := newConfig(t)
	readOnly, err := os.Open(config.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if err := endDMA(int(readOnly.Fd()), 2); err == nil {
		t.Error("it is off, though nobody can write")
	}
	if err := endDMA(-1, 2); !errors.Is(err, unix.EBADF) {
		t.Errorf("no configuration space: %v", err)
	}
	if err := config.Truncate(5); err != nil {
		t.Fatal(err)
	}
	if err := endDMA(int(config.Fd()), 2); err == nil {
		t.Error("a configuration space that ends in the command register")
	}
	if _, err := config.WriteAt([]byte{0xff, 0xff}, 4); err != nil {
		t.Fatal(err)
	}
	if err := endDMA(int(config.Fd()), 2); err != nil {
		t.Errorf("a device that has gone: %v", err)
	}
}

// TestProgramIsAGuardianOnlyWhenADriverStartedIt: the variable may come from anywhere, and then nothing happens.
func TestProgramIsAGuardianOnlyWhenADriverStartedIt(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string) (string, error) {
		cmd := &exec.Cmd{Path: program, Args: []string{name, "-test.run=^$"}, Env: append(os.Environ(), environment+"="+version)}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(program); err != nil {
		t.Errorf("with the variable alone: %v, %q", err, out)
	}
	if out, err := run(processName); err == nil || !strings.Contains(out, environment+" is set") {
		t.Errorf("with the name and without a socket: %v, %q", err, out)
	}
}

func TestSocketSaysWhoStartedAGuardian(t *testing.T) {
	for what, c := range map[string]struct {
		kind, parent int
		ok           bool
	}{
		"its parent":       {unix.SOCK_SEQPACKET, os.Getpid(), true},
		"somebody else":    {unix.SOCK_SEQPACKET, os.Getppid(), false},
		"another's socket": {unix.SOCK_STREAM, os.Getpid(), false},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, c.kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := startedBy(fds[0], c.parent); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
		unix.Close(fds[0])
		unix.Close(fds[1])
	}
	if err := startedBy(-1, os.Getpid()); err == nil {
		t.Error("no socket at all")
	}
}

// TestLateAnswerIsNotTakenForAnother: of what was given up for lack of an answer, when the answer comes after all.
func TestLateAnswerIsNotTakenForAnother(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	g := &Guardian{sock: os.NewFile(uintptr(fds[0]), "guardian"), last: 1}
	defer g.sock.Close()
	if g.raw, err = g.sock.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	for _, m := range [][]byte{message(opHold, 0, 1), message(opHold, byte(unix.ENFILE), 2)} {
		if err := unix.Sendto(fds[1], m, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Hold(fds[1]); !errors.Is(err, unix.ENFILE) {
		t.Errorf("hold: %v", err)
	}
}

// TestParentThatHangsUpIsTakenForDead: a parent does not close its end while it needs the guardian; one that starts another
// program in its own place does.
func TestParentThatHangsUpIsTakenForDead(t *testing.T) {
	config := newConfig(t)
	g := start(t, config)
	if err := g.sock.Close(); err != nil {
		t.Fatal(err)
	}
	<-g.Exited()
	if got := command(t, config); got != 0x142 {
		t.Errorf("the command register is %#x", got)
	}
}
