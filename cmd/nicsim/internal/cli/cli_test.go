package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/nic82599"
	"bare.wire/sim/qemu"
	"bare.wire/sim/qemu/qemutest"
)

// TestMain lets this binary pass for QEMU, when it is called as one.
func TestMain(m *testing.M) {
	if qemutest.Asked() {
		os.Exit(qemutest.Main(os.Args[1:], os.Stdout))
	}
	os.Exit(m.Run())
}

// nicsim runs the program with this binary for QEMU.
func nicsim(t *testing.T, args ...string) (status int, out, log string) {
	t.Helper()
	t.Setenv(qemutest.Env, "1")
	var o, l sharedBuffer
	status = (&app{out: &o, log: &l}).main(t.Context(), args)
	return status, o.b.String(), l.b.String()
}

// sharedBuffer is written by QEMU and by us, as standard error is.
type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

// fake is what stands behind -- for a QEMU of the behaviour.
func fake(behaviour string) []string { return []string{"--", os.Args[0], "-name", behaviour} }

func TestTheStatusOfTheMachineIsOurs(t *testing.T) {
	status, out, log := nicsim(t, append([]string{"qemu", "--wire", "pair"}, fake(qemutest.Obedient)...)...)
	require.Equal(t, 7, status, log)
	require.Contains(t, out, "function 0: 8086:10fb")
	require.Contains(t, out, "function 1: 8086:10fb", "a pair is two cards")
	require.Contains(t, out, "unnamed-gpio-in 20 1")
	require.Contains(t, out, "unnamed-gpio-in 21 1", "the second is in the next slot")
	require.Contains(t, log, "nicsim: wire: 0 frames from the first card (0 lost), 0 to it (0 lost)")
	require.Contains(t, log, "nicsim: card 1 (slot 5): 5 register accesses, 1 interrupts, DMA 0 reads 0 writes")
	require.Contains(t, log, "misuse: UndefinedRegister: access to an offset at which there is no register (read of 1FFFC;")
}

func TestTheSummaryAsJSON(t *testing.T) {
	status, _, log := nicsim(t, append([]string{"qemu", "--summary", "json", "--slot", "6"}, fake(qemutest.Obedient)...)...)
	require.Equal(t, 7, status, log)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(log), &s), log)
	require.Nil(t, s.Wire)
	require.Len(t, s.Cards, 1)
	require.Equal(t, "card 0 (slot 6)", s.Cards[0].Name)
	require.Equal(t, uint64(5), s.Cards[0].Accesses)
	require.NotEmpty(t, s.Cards[0].Misuse)
	_, _, log = nicsim(t, append([]string{"qemu", "--summary", "none"}, fake(qemutest.Obedient)...)...)
	require.Empty(t, log)
}

func TestAMachineThatBreaksTheProtocolIsOurFailure(t *testing.T) {
	status, _, log := nicsim(t, append([]string{"qemu"}, fake(qemutest.Babbling)...)...)
	require.Equal(t, int(Failed), status)
	require.Contains(t, log, "nicsim: slot 4: proxy protocol: unexpected command 99")
}

// TestACaptureThatCannotBeWrittenIsOurFailure has a full disk: it is no mistake in the command line.
func TestACaptureThatCannotBeWrittenIsOurFailure(t *testing.T) {
	status, _, log := nicsim(t, append([]string{"qemu", "--wire", "pcap:/dev/full", "--summary", "none"}, fake(qemutest.Obedient)...)...)
	t.Log(log)
	require.Equal(t, int(Environment), status, "the head of the file is written at once")
	err := besides(besides(nil, errors.New("the last frames")), errors.New("the cards"))
	var exit *exitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, Failed, exit.code)
	require.ErrorContains(t, err, "the last frames")
	require.ErrorContains(t, err, "the cards")
	require.NoError(t, besides(nil, nil))
	err = besides(environment(errors.New("no QEMU")), errors.New("the cards"))
	require.ErrorAs(t, err, &exit)
	require.Equal(t, Environment, exit.code)
	require.ErrorContains(t, exit, "the cards", "main prints what it finds so")
}

func TestTheLogGoesWhereItIsToldTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	_, _, _ = nicsim(t, append([]string{"qemu", "-v", "--log", file}, fake(qemutest.Obedient)...)...)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(b), "msg=start")
	status, _, log := nicsim(t, append([]string{"qemu", "--log", "/nowhere/log"}, fake(qemutest.Obedient)...)...)
	require.Equal(t, int(Environment), status)
	require.Contains(t, log, "/nowhere/log")
}

func TestWrongCommandLinesSayWhatWasMeant(t *testing.T) {
	q := fake(qemutest.Obedient)
	for _, c := range []struct {
		args []string
		code Code
		want string
	}{
		{[]string{"qemo"}, Usage, "qemu"},
		{[]string{"qemu"}, Usage, "then --, then qemu-system-x86_64"},
		{[]string{"qemu", "qemu-system-x86_64"}, Usage, "then --"},
		{append([]string{"qemu", "--wires", "pair"}, q...), Usage, "did you mean --wire?"},
		{append([]string{"qemu", "--kernel", "x"}, q...), Usage, "QEMU's own arguments go behind --"},
		{append([]string{"qemu", "--wire", "tape:tap0"}, q...), Usage, "want none, pair, tap:NAME or pcap:FILE"},
		{append([]string{"qemu", "--wire", "tap"}, q...), Usage, "the name of an interface is missing"},
		{append([]string{"qemu", "--wire", "pair:x"}, q...), Usage, "pair takes no name"},
		{append([]string{"qemu", "--wire", "none?loss=1"}, q...), Usage, "there is no wire"},
		{append([]string{"qemu", "--wire", "pair?los=1e-3"}, q...), Usage, "los"},
		{append([]string{"qemu", "--wire", "pair?%zz=1"}, q...), Usage, "name=value"},
		{append([]string{"qemu", "--wire", "pair", "--cards", "1"}, q...), Usage, "leave --cards out"},
		{append([]string{"qemu", "--wire", "pcap:x", "--cards", "2"}, q...), Usage, "leave --cards out"},
		{append([]string{"qemu", "--wire", "pcap:x", "--capture", "y"}, q...), Usage, "leave one out"},
		{append([]string{"qemu", "--capture", "y"}, q...), Usage, "nothing to capture"},
		{append([]string{"qemu", "--cards", "3"}, q...), Usage, "want 1 or 2"},
		{append([]string{"qemu", "--slot", "31"}, q...), Usage, "want 1 to 29"},
		{append([]string{"qemu", "--summary", "xml"}, q...), Usage, "want text, json or none"},
		{append([]string{"qemu", "--fault", "rah-msk"}, q...), Usage, "rah-mask"},
		{append([]string{"qemu", "--control", "/nowhere/sock"}, q...), Environment, "control socket"},
		{append([]string{"qemu", "--wire", "pcap:/nowhere/x"}, q...), Environment, "create the capture file"},
		{append([]string{"qemu", "--wire", "tap:seventeen-letters"}, q...), Environment, "1 to 15 characters"},
		{[]string{"qemu", "--", "qemu-system-none"}, Environment, "apt-get install qemu-system-x86"},
		{append(append([]string{"qemu"}, q...), "-enable-kvm"), Usage, "write -accel tcg"},
	} {
		status, _, log := nicsim(t, c.args...)
		require.Equal(t, int(c.code), status, "%q: %s", c.args, log)
		require.Contains(t, log, c.want, "%q", c.args)
		require.True(t, strings.HasPrefix(log, "nicsim: "), log)
	}
}

func TestHelpSaysWhatAWireCanDo(t *testing.T) {
	status, out, _ := nicsim(t, "qemu", "--help")
	require.Zero(t, status)
	for _, word := range []string{"--wire", "--control", "Parameters of a wire:", "  loss ", "8086:10fb"} {
		require.Contains(t, out, word)
	}
	status, out, _ = nicsim(t, "qemu", "--fault", "list", "--", "x")
	require.Zero(t, status)
	require.Contains(t, out, "rah-mask\n")
	require.Contains(t, out, "mask:REG:BIT")
	status, alone, _ := nicsim(t, "qemu", "--fault", "list")
	require.Zero(t, status)
	require.Equal(t, out, alone, "no machine is needed for it")
}

func TestStrictIsAboutDriversThatTheGuestIsHappyWith(t *testing.T) {
	bad := summary{Cards: []cardSummary{{}, {Misuse: []string{"x"}}}}
	require.True(t, bad.misused())
	require.True(t, summary{Cards: []cardSummary{{DMAFaults: 1}}}.misused())
	require.False(t, summary{Cards: []cardSummary{{Accesses: 1}}}.misused())
}

// newBench is two cards on a wire, in a machine that does not run.
func newBench(t *testing.T, w wireFlag, capture string) *bench {
	t.Helper()
	t.Setenv(qemutest.Env, "1")
	b := &bench{clk: clock.Real(), log: slog.New(slog.DiscardHandler)}
	b.world = sim.NewWorld(b.clk)
	var err error
	b.machine, err = qemu.New(t.Context(), qemu.Config{Command: []string{os.Args[0]}})
	require.NoError(t, err)
	f := &qemuFlags{cards: 2, slot: 4, capture: capture}
	if w.kind == wirePcap {
		f.cards = 1
	}
	require.NoError(t, b.build(f, w, nic82599.Faults{}))
	t.Cleanup(func() {
		for _, c := range b.cards {
			require.NoError(t, c.Close())
		}
		require.NoError(t, b.cable.close())
		require.NoError(t, b.machine.Close())
	})
	return b
}

// say sends a request over a control socket and returns the answer.
func say(t *testing.T, c io.ReadWriter, r *bufio.Reader, line string) (a map[string]any) {
	t.Helper()
	_, err := fmt.Fprintln(c, line)
	require.NoError(t, err)
	b, err := r.ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &a), string(b))
	return a
}

func TestTheControlSocketAnswersEachLine(t *testing.T) {
	b := newBench(t, wireFlag{kind: wirePair}, "")
	path := filepath.Join(t.TempDir(), "ctl")
	ctl, err := listen(path, b.answer)
	require.NoError(t, err)
	_, err = listen(path, b.answer)
	require.ErrorContains(t, err, "in use by another process")
	var beside sync.WaitGroup
	beside.Go(ctl.serve)
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	ask := func(line string) map[string]any {
		t.Helper()
		a := say(t, conn, r, line)
		require.Equal(t, true, a["ok"], "%s: %v", line, a)
		return a
	}
	a := ask(`{"do":"reg","card":0,"off":8}`)
	require.Equal(t, "STATUS", a["name"])
	ask(`{"do":"link","card":1,"up":false}`)
	ask(`{"do":"fault","card":0,"name":"mask:RAH:3"}`)
	b.cards[0].Write32(0x5404, 0xF)
	a = ask(`{"do":"reg","card":0,"off":21508}`)
	require.Equal(t, float64(7), a["value"], "the fault acts")
	ask(`{"do":"fault","card":0,"name":""}`)
	require.Contains(t, fmt.Sprint(ask(`{"do":"faults"}`)["faults"]), "rah-mask")
	require.Contains(t, ask(`{"do":"stats","card":0}`), "registers")
	b.cards[0].Read32(0x1FFFC)
	m := ask(`{"do":"misuse","card":0}`)["misuse"].([]any)
	require.NotEmpty(t, m)
	require.Contains(t, m[len(m)-1], "kind")
	ask(`{"do":"forget","card":0}`)
	require.Empty(t, ask(`{"do":"misuse","card":0}`)["misuse"])
	a = ask(`{"do":"dma","card":0}`)
	require.Equal(t, float64(0), a["reads"])
	require.NotContains(t, a, "ago_ns", "there was none")
	a = ask(`{"do":"wire"}`)
	require.Equal(t, float64(0), a["a_to_b"].(map[string]any)["frames"])
	require.Equal(t, false, a["up"])
	ask(`{"do":"remove","card":1}`)
	require.Equal(t, uint32(0xFFFFFFFF), b.cards[1].Read32(8))
	for line, want := range map[string]string{
		`{"do":"dance"}`:                             ", faults, ",
		`{"do":"stats"}`:                             `takes "card" besides`,
		`{"do":"stats","card":2}`:                    "there are 2, from 0",
		`{"do":"stats","card":-1}`:                   "there are 2, from 0",
		`{"do":"wire","card":0}`:                     `takes "" besides`,
		`{"do":"stats","card":0,"colour":1}`:         "unknown field",
		`{"do":"stats","card":0} {"do":"stats"}`:     "more than one object",
		`nonsense`:                                   "request: invalid",
		`{"do":"fault","card":0,"name":"x"}`:         "there is none of that name",
		`{"do":"reg","card":0,"off":2}`:              "no register at 0x2",
		`{"do":"link","card":0}`:                     `takes "card up"`,
		`{"do":"reg","card":0,"off":1e99}`:           `"off" cannot be number 1e99`,
		`{"do":"reg","card":0,"off":"0x5400"}`:       `"off" cannot be string`,
		`[]`:                                         "a JSON object is wanted, not array",
		`{"do":"stats","card":99999999999999999999}`: "request:",
	} {
		a := say(t, conn, r, line)
		require.Equal(t, false, a["ok"], line)
		require.Contains(t, a["error"], want, line)
	}
	a = say(t, conn, r, strings.Repeat(" ", 3*maxRequest))
	require.Contains(t, a["error"], "at most 65536 bytes")
	require.Equal(t, true, say(t, conn, r, "\n"+`{"do":"faults"}`)["ok"], "and it goes on; empty lines are none")
	other, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.Equal(t, true, say(t, other, bufio.NewReader(other), `{"do":"faults"}`)["ok"])
	ctl.close()
	beside.Wait()
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestASocketThatWasLeftBehindIsReplaced(t *testing.T) {
	b := newBench(t, wireFlag{kind: wirePair}, "")
	path := filepath.Join(t.TempDir(), "ctl")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	ln.SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	ctl, err := listen(path, b.answer)
	require.NoError(t, err)
	ctl.close()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = listen(path, b.answer)
	require.ErrorContains(t, err, "is no socket")
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"do":"reg","card":0,"off":8}`))
	f.Add([]byte(`{"do":"faults"}`))
	f.Add([]byte(`{"do":`))
	world := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
	b := &bench{clk: world.Clock(), world: world, cable: &cable{}}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := b.desk().ask(line) // there are no cards, so most things are refused
		if (a == nil) == (err == nil) {
			t.Fatal(a, err)
		}
		if _, err := json.Marshal(b.answer(line)); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzWire(f *testing.F) {
	f.Add("tap:tap0?rate=1G&ab.loss=1e-3")
	f.Add("pair?%")
	f.Fuzz(func(t *testing.T, s string) {
		w, err := parseWire(s, wireNone, wirePair, wireTap, wirePcap, wireEcho, wireUser)
		if err == nil && (wireForms[w.kind].what != "") != (w.arg != "") {
			t.Fatalf("%q: %+v", s, w)
		}
	})
}

func TestWhatIsSentIsInTheCapture(t *testing.T) {
	for _, c := range []struct {
		name string
		w    wireFlag
		file string
	}{
		{"a wire that loses everything", wireFlag{kind: wirePair, link: link.Config{Loss: 1}}, "capture"},
		{"a wire with directions", wireFlag{kind: wirePair, link: link.Config{AToB: &link.Config{}, BToA: &link.Config{Loss: 1}}}, "capture"},
		{"a file at the other end", wireFlag{kind: wirePcap}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out.pcap")
			capture := ""
			if c.file != "" {
				capture = file
			} else {
				c.w.arg = file
			}
			b := newBench(t, c.w, capture)
			frames := [][]byte{bytes.Repeat([]byte{1}, 60), bytes.Repeat([]byte{2}, 9000)}
			b.world.Lock()
			b.cable.wire.B().SetUp(true)
			b.cable.wire.A().SetUp(true)
			for _, f := range frames {
				b.cable.wire.A().Transmit(f, b.clk.Nanos())
			}
			if c.w.kind == wirePair {
				b.cable.wire.B().Transmit(frames[0], b.clk.Nanos())
				frames = append(frames, frames[0])
			}
			b.world.Unlock()
			b.world.Step()
			require.Equal(t, frames, readCapture(t, file), "at once, not only at the end")
			if c.w.kind == wirePcap {
				require.Equal(t, uint64(2), b.cable.wire.Counts(link.AToB).Delivered, "the sink has taken them")
			}
		})
	}
}

func readCapture(t *testing.T, name string) (frames [][]byte) {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	require.NoError(t, err)
	for {
		b, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return frames
		}
		require.NoError(t, err)
		require.Equal(t, len(b), info.Length)
		frames = append(frames, b)
	}
}

func TestAnInterruptEndsTheMachine(t *testing.T) {
	t.Setenv(qemutest.Env, "1")
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{out: writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil }), log: io.Discard}
	require.Equal(t, 128+15, a.main(ctx, append([]string{"qemu"}, fake(qemutest.Hanging)...)))
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
