package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"bare.wire/device"
)

// onLine is a writer that calls f when it sees text.
type onLine struct {
	bytes.Buffer
	text string
	f    func()
}

func (w *onLine) Write(b []byte) (int, error) {
	if w.f != nil && strings.Contains(string(b), w.text) {
		w.f()
		w.f = nil
	}
	return w.Buffer.Write(b)
}

func TestSIGINTPrintsAPartialResult(t *testing.T) {
	out := &onLine{text: "   1 s ", f: func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}}
	code := Main([]string{"run", "-t", "1000s", "sim:?clock=virtual"}, out, io.Discard)
	if code != int(Interrupted) || !strings.Contains(out.String(), " INTERRUPTED after ") || !strings.Contains(out.String(), "lost 0 (0 %)") {
		t.Errorf("code %d:\n%s", code, out)
	}
}

func TestRunWithoutEndIsEndedByTheUserAndIsFine(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	out := &onLine{text: "   1 s ", f: cancel}
	a := &app{out: out, log: io.Discard, open: device.OpenSet}
	if code := a.main(ctx, []string{"run", "-t", "0", "sim:?clock=virtual"}); code != OK || !strings.Contains(out.String(), "\n VALID\n") {
		t.Errorf("code %d:\n%s", code, out)
	}
}

func TestMachineThatRefusesIsNotAUsageError(t *testing.T) {
	for want, err := range map[Code]error{Environment: os.NewSyscallError("open", syscall.EACCES), Usage: errors.New("no such kind")} {
		a := &app{out: io.Discard, log: io.Discard, open: func(context.Context, device.Options, ...string) (*device.Set, error) { return nil, err }}
		if code := a.main(context.Background(), []string{"run"}); code != want {
			t.Errorf("%v: code %d, want %d", err, code, want)
		}
	}
}

func TestOneLineSaysWhatIsWrong(t *testing.T) {
	var log bytes.Buffer
	a := &app{out: io.Discard, log: &log, open: device.OpenSet}
	if code := a.main(context.Background(), []string{"run", "-r", "fast"}); code != Usage || strings.Count(log.String(), "\n") != 1 || !strings.HasPrefix(log.String(), "pktgen: -r: rate \"fast\"") {
		t.Errorf("code %d: %s", code, log.String())
	}
}

// A null: card always has frames; neither command may wait for it to fall silent.
func TestPortThatIsNeverSilentEndsTheCommand(t *testing.T) {
	in := record(t, shot{0, numbered(0, 60)})
	for _, args := range [][]string{{"run", "-n", "10", "--drain", "1ms", "null:"}, {"replay", "--drain", "1ms", in, "null:"}} {
		var log bytes.Buffer
		out := new(bytes.Buffer)
		code := (&app{out: out, log: &log, open: device.OpenSet}).main(context.Background(), args)
		if code != OK && code != Invalid || !strings.Contains(out.String(), "sent ") {
			t.Errorf("%v: code %d: %s%s", args, code, out, log.String())
		}
	}
}
