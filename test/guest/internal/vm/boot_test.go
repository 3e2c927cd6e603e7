package vm

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"bare.wire/test/guest/internal/kernel"
	"bare.wire/test/guest/internal/proto"
)

// actVariable makes this test binary behave as QEMU with a guest in it, in the way it names.
const actVariable = "VM_TEST_ACT"

// livesVariable is where "dies young" finds how often it has to.
const livesVariable = "VM_TEST_LIVES"

func TestMain(m *testing.M) {
	if act := os.Getenv(actVariable); act != "" {
		os.Exit(acts[act](connectAsQEMU()))
	}
	os.Exit(m.Run())
}

// guestEnd is the guest's end of the two ports.
type guestEnd struct {
	results, questions net.Conn
	in                 *bufio.Reader
}

// connectAsQEMU connects to the sockets that the command line names.
func connectAsQEMU() *guestEnd {
	sockets := regexp.MustCompile(`socket,id=host\d,path=(\S+)`).FindAllStringSubmatch(strings.Join(os.Args, " "), -1)
	var g guestEnd
	for i, c := range []*net.Conn{&g.results, &g.questions} {
		var err error
		if *c, err = net.Dial("unix", sockets[i][1]); err != nil {
			panic(err)
		}
	}
	g.in = bufio.NewReader(g.results)
	return &g
}

func (g *guestEnd) send(k proto.Kind, payload string) {
	if err := proto.Write(g.results, k, []byte(payload)); err != nil {
		panic(err)
	}
}

// exchange sends a frame, and waits for what comes back.
func (g *guestEnd) exchange(k proto.Kind, payload string) string {
	g.send(k, payload)
	_, p, err := proto.Read(g.in)
	if err != nil {
		fmt.Println("the host does not answer:", err)
		os.Exit(3)
	}
	return string(p)
}

func (g *guestEnd) end(status int) int {
	b, err := json.Marshal(proto.Ending{Status: status})
	if err != nil {
		panic(err)
	}
	g.exchange(proto.End, string(b))
	return exitDone
}

func archiveOf(name string, kind byte) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := &tar.Header{Name: name, Typeflag: kind, Mode: 0o644}
	if kind == tar.TypeReg {
		h.Size = 4
	}
	if err := errors.Join(w.WriteHeader(h), func() error {
		if kind != tar.TypeReg {
			return nil
		}
		_, err := w.Write([]byte("text"))
		return err
	}(), w.Close()); err != nil {
		panic(err)
	}
	return b.String()
}

// acts are ways for a guest to behave; each returns QEMU's exit status.
var acts = map[string]func(*guestEnd) int{
	"well": func(g *guestEnd) int {
		g.exchange(proto.Hello, "6.1")
		g.send(proto.Output, "printed")
		g.send(proto.Log, "logged")
		g.send(proto.Kernel, "booted")
		a := archiveOf("left.txt", tar.TypeReg)
		g.send(proto.Tar, a[:700])
		g.send(proto.Tar, a[700:])
		return g.end(5)
	},
	"asks": func(g *guestEnd) int {
		g.exchange(proto.Hello, "6.1")
		if err := proto.Write(g.questions, proto.Ask, proto.Numbered(7, "what?")); err != nil {
			panic(err)
		}
		k, p, err := proto.Read(bufio.NewReader(g.questions))
		n, text, _ := proto.Number(p)
		g.send(proto.Output, fmt.Sprintf("%c %d %s %v", k, n, text, err))
		return g.end(0)
	},
	"restarts": func(g *guestEnd) int {
		g.exchange(proto.Hello, "6.1")
		g.exchange(proto.Restart, "")
		g.send(proto.Output, "start "+g.exchange(proto.Hello, "6.1"))
		return g.end(0)
	},
	"reboots unasked": func(g *guestEnd) int {
		g.exchange(proto.Hello, "6.1")
		g.exchange(proto.Hello, "6.1")
		return 0
	},
	"leaves the directory": func(g *guestEnd) int {
		g.exchange(proto.Hello, "6.1")
		g.send(proto.Tar, archiveOf("../escaped.txt", tar.TypeReg))
		return g.end(0)
	},
	"sends a link":         func(g *guestEnd) int { g.send(proto.Tar, archiveOf("link", tar.TypeSymlink)); return g.end(0) },
	"cuts its archive off": func(g *guestEnd) int { g.send(proto.Tar, archiveOf("a", tar.TypeReg)[:515]); return g.end(0) },
	"talks nonsense":       func(g *guestEnd) int { g.send('?', "x"); return g.end(0) },
	"lies about a length":  func(g *guestEnd) int { fmt.Fprint(g.results, "O\xff\xff\xff\xff"); return g.end(0) },
	"ends badly":           func(g *guestEnd) int { g.exchange(proto.End, "{"); return exitDone },
	"asks nonsense": func(g *guestEnd) int {
		fmt.Fprint(g.questions, "Q\x00\x00\x00\x01x")
		_, _, err := proto.Read(g.in) // until it is ended for it
		fmt.Println(err)
		return 0
	},
	"dies young": func(g *guestEnd) int { // as often as there is still a file to remove
		if os.Remove(os.Getenv(livesVariable)+"1") == nil || os.Remove(os.Getenv(livesVariable)+"2") == nil || os.Remove(os.Getenv(livesVariable)+"3") == nil {
			return 128 + int(syscall.SIGSEGV)
		}
		g.exchange(proto.Hello, "6.1")
		return g.end(0)
	},
	"is never heard of": func(g *guestEnd) int {
		_, _, err := proto.Read(g.in) // for ever
		fmt.Println(err)
		return 0
	},
	"dies later": func(g *guestEnd) int {
		g.exchange(proto.Hello, "6.1")
		return 128 + int(syscall.SIGSEGV)
	},
	"panics":              func(g *guestEnd) int { g.exchange(proto.Hello, "6.1"); return 0 },
	"dies in a frame":     func(g *guestEnd) int { fmt.Fprint(g.results, "O\x00\x00\x10\x00half"); return 0 },
	"crashes":             func(g *guestEnd) int { fmt.Println("qemu: out of order"); return 1 },
	"fails after the end": func(g *guestEnd) int { g.end(0); return 9 },
	"hangs": func(g *guestEnd) int {
		g.exchange(proto.Hello, "6.1")
		g.send(proto.Output, "hanging")
		_, _, err := proto.Read(g.in) // for ever
		fmt.Println(err)
		return 0
	},
}

// bootAs boots a guest that behaves in a way.
func bootAs(t *testing.T, ctx context.Context, act string, s Spec) (*run, *proto.Ending, error) {
	t.Helper()
	return startAs(t, ctx, act, s, (*run).boot)
}

func startAs(t *testing.T, ctx context.Context, act string, s Spec, start func(*run, context.Context) (*proto.Ending, error)) (*run, *proto.Ending, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := workDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, Program), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv(actVariable, act)
	s.Wrap = []string{self}
	r := &run{spec: s, kernel: &kernel.Kernel{Image: "none"}, dir: dir, patience: helloTime}
	if act == "is never heard of" {
		r.patience = time.Second
	}
	end, err := start(r, ctx)
	return r, end, err
}

func (r *run) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestGuestThatDoesWell(t *testing.T) {
	var out bytes.Buffer
	r, end, err := bootAs(t, t.Context(), "well", Spec{Output: &out})
	if err != nil || end.Status != 5 {
		t.Fatalf("got %v, %v", end, err)
	}
	if out.String() != "printed" || r.read(t, "log.txt") != "start 1, kernel 6.1\nlogged\n" || r.read(t, "kernel.txt") != "booted" || r.read(t, "out/left.txt") != "text" {
		t.Errorf("output %q", out.String())
	}
	if s := r.read(t, "command.txt"); !strings.Contains(s, Program+" -nodefaults") || !strings.Contains(s, "'console=ttyS0 quiet") {
		t.Errorf("the command: %s", s)
	}
}

func TestGuestAsks(t *testing.T) {
	for _, c := range []struct {
		answer func(string) string
		want   string
	}{
		{strings.ToUpper, "R 7 WHAT? <nil>"},
		{nil, "X 7 nobody answers questions: set Machine.Answer <nil>"},
		{func(string) string { return strings.Repeat("x", proto.MaxPayload) }, "X 7 the answer has 1048576 bytes, too many <nil>"},
	} {
		var out bytes.Buffer
		if _, _, err := bootAs(t, t.Context(), "asks", Spec{Output: &out, Answer: c.answer}); err != nil || out.String() != c.want {
			t.Errorf("got %q, %v; want %q", out.String(), err, c.want)
		}
	}
}

func TestGuestRestarts(t *testing.T) {
	var out bytes.Buffer
	again := 0
	if _, _, err := bootAs(t, t.Context(), "restarts", Spec{Output: &out, Restarts: 1, Again: func() { again++ }}); err != nil || out.String() != "start 2" || again != 1 {
		t.Errorf("got %q, %v, and Again was called %d times", out.String(), err, again)
	}
	if _, _, err := bootAs(t, t.Context(), "restarts", Spec{}); err == nil || !strings.Contains(err.Error(), "may boot again 0 times") {
		t.Errorf("more often than it may: %v", err)
	}
}

func TestEachStartHasItsTime(t *testing.T) {
	s := Spec{Limit: time.Hour, Restarts: 2}
	if s.whole() < 3*time.Hour {
		t.Errorf("%v for three starts of an hour each", s.whole())
	}
}

func TestGuestThatFails(t *testing.T) {
	for act, says := range map[string]string{
		"reboots unasked":      "may have panicked",
		"leaves the directory": "escapes",
		"sends a link":         "neither a file nor a directory",
		"cuts its archive off": "unexpected EOF",
		"talks nonsense":       "nobody knows",
		"lies about a length":  "at most",
		"ends badly":           "how the command ended",
		"asks nonsense":        "no question",
		"panics":               "panicked",
		"dies in a frame":      "panicked",
		"crashes":              "status 1",
		"fails after the end":  "status 9",
	} {
		r, _, err := bootAs(t, t.Context(), act, Spec{Restarts: 1})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", act, err, says)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "../escaped.txt")); err == nil {
			t.Errorf("%s: a file was written outside the directory", act)
		}
		if act == "crashes" && !strings.Contains(r.tail(), "out of order") {
			t.Errorf("%s: the tail is %q", act, r.tail())
		}
	}
}

func TestQEMUThatDiesBeforeTheGuestIsStartedAgain(t *testing.T) {
	for deaths, dead := range []bool{false, false, false, true} {
		lives := filepath.Join(t.TempDir(), "life")
		t.Setenv(livesVariable, lives)
		for i := range deaths {
			if err := os.WriteFile(fmt.Sprint(lives, i+1), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		r, end, err := startAs(t, t.Context(), "dies young", Spec{}, (*run).start)
		if dead != errors.Is(err, errStillborn) || dead != (end == nil) || !dead && r.crashes != deaths {
			t.Errorf("%d deaths: %v, %v, %d crashes", deaths, end, err, r.crashes)
		}
	}
	if r, _, err := startAs(t, t.Context(), "is never heard of", Spec{}, (*run).start); !errors.Is(err, errStillborn) || r.crashes != bootTries-1 {
		t.Errorf("a guest that is never heard of: %v, %d crashes", err, r.crashes)
	}
	if r, _, err := startAs(t, t.Context(), "dies later", Spec{}, (*run).start); err == nil || errors.Is(err, errStillborn) || r.crashes != 0 {
		t.Errorf("a guest that was there: %v, %d crashes", err, r.crashes)
	}
}

// stopper ends a context when something is written to it.
type stopper struct{ stop context.CancelCauseFunc }

func (s stopper) Write(p []byte) (int, error) {
	s.stop(errTooLong)
	return len(p), nil
}

func TestGuestThatHangsIsEnded(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	if _, _, err := bootAs(t, ctx, "hangs", Spec{Output: stopper{stop}}); !errors.Is(err, errTooLong) || !strings.Contains(err.Error(), "had not ended") {
		t.Errorf("got %v", err)
	}
}

func TestMachines(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name string
		spec Spec
		has  []string
		not  []string
	}{
		{"plain", Spec{}, []string{"-smp 2", "-m 576M", "thread=multi", "-no-reboot"}, []string{"intel-iommu", "intel_iommu", "memfd"}},
		{"IOMMU", Spec{IOMMU: true, Cmdline: []string{"a=b"}}, []string{"-device intel-iommu,intremap=on", "intel_iommu=on a=b"}, nil},
		{"shared memory", Spec{ShareRAM: true}, []string{"memory-backend=ram", "memory-backend-memfd,id=ram,size=576M,share=on", "-smp 1", "thread=multi"}, nil},
		{"shared memory, two processors", Spec{ShareRAM: true, CPUs: 2}, []string{"-smp 2", "thread=single"}, nil},
		{"huge pages", Spec{HugePages: 100}, []string{"-m 832M"}, nil},
		{"memory", Spec{HugePages: 100, Memory: 300}, []string{"-m 300M"}, nil},
		{"restarts", Spec{Restarts: 1}, nil, []string{"-no-reboot"}},
		{"devices", Spec{QEMU: []string{"-device", "e1000e"}, Wrap: []string{"nicsim", "--"}}, []string{"nicsim -- " + Program, "-device e1000e"}, nil},
	} {
		r := &run{spec: c.spec, kernel: &kernel.Kernel{Image: "image"}, dir: "/tmp/a,b", initrd: 30 * mib}
		line := strings.Join(r.arguments(), " ")
		for _, s := range append(c.has, "-kernel image", "path=/tmp/a,,b/results.sock", "-nodefaults") {
			if !strings.Contains(line, s) {
				t.Errorf("%s: no %q in %s", c.name, s, line)
			}
		}
		for _, s := range c.not {
			if strings.Contains(line, s) {
				t.Errorf("%s: %q in %s", c.name, s, line)
			}
		}
	}
}

func TestWordsForAShell(t *testing.T) {
	got := shellWords([]string{"a", "", "b c", "it's", "x=$y", "a,b=c:/d"})
	if want := `a '' 'b c' 'it'\''s' 'x=$y' a,b=c:/d`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestExcerptBeginsWhereAKernelDies(t *testing.T) {
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprint(i))
	}
	if got := excerpt(lines); len(got) != tailLines || got[tailLines-1] != "199" {
		t.Errorf("an ordinary text: %q", got)
	}
	lines[100] = "Kernel panic - not syncing"
	if got := excerpt(lines); len(got) != tailLines || got[0] != "98" {
		t.Errorf("a panic: %q", got)
	}
	if got := excerpt([]string{"BUG: x"}); len(got) != 1 {
		t.Errorf("a short one: %q", got)
	}
}

func TestDirectoryForSocketsIsShort(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	dir, err := workDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if len(dir) > maxSocketPath {
		t.Errorf("%s has %d bytes, more than %d", dir, len(dir), maxSocketPath)
	}
}
