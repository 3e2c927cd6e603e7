//go:build guest

package vfio

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/test/guest"
)

// The cards in the guest.
var cards = []string{"0000:00:04.0", "0000:00:05.0"}

// realTime is the time of the machine: devices, kernels and other processes know no other.
var realTime = clock.Real()

func pause(d time.Duration) { _ = realTime.Sleep(context.Background(), d) } // no end of a context, no error

// full says whether the long runs are wanted.
func full() bool { return os.Getenv("BAREWIRE_FULL") != "" }

// pick is a number of repetitions: few, or many in the long run.
func pick(few, many int) int {
	if full() {
		return many
	}
	return few
}

// cardsMachine adds two software cards on one wire to a machine, and lets the guest ask nicsim (see ask). Flags are nicsim's.
func cardsMachine(t *testing.T, m guest.Machine, flags ...string) guest.Machine {
	t.Helper()
	m.ShareRAM = true // the cards are in another process
	if guest.Inside() {
		return m
	}
	dir, err := os.MkdirTemp("", "cards-") // a socket's name has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "control")
	m.Wrap = slices.Concat([]string{guest.Nicsim(t), "qemu", "--wire", "pair", "--control", socket, "--summary", "none"}, flags, []string{"--"})
	m.Answer = func(question string) string {
		a, err := relay(socket, question)
		if err != nil {
			return fmt.Sprintf(`{"ok":false,"error":%q}`, err.Error())
		}
		return a
	}
	return m
}

// relay puts one line to nicsim and returns its answer.
func relay(socket, line string) (string, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(realTime.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// asked is what nicsim answers; each request fills some of it.
type asked struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error"`
	Misuse []struct {
		Kind string `json:"kind"`
		Text string `json:"text"`
	} `json:"misuse"`
	Reads      uint64 `json:"reads"`
	Writes     uint64 `json:"writes"`
	Faults     uint64 `json:"faults"`
	Last       uint64 `json:"last"`
	Ago        int64  `json:"ago_ns"`
	LastFault  string `json:"last_fault"`
	Value      uint32 `json:"value"`
	Interrupts uint64 `json:"interrupts"`
	AToB       wired  `json:"a_to_b"`
	BToA       wired  `json:"b_to_a"`
}

// wired is the wire's count of one direction.
type wired struct {
	Frames    uint64 `json:"frames"`
	Delivered uint64 `json:"delivered"`
}

// ask puts a request to nicsim, from inside the guest.
func ask(format string, args ...any) (a asked, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	question := fmt.Sprintf(format, args...)
	text, err := guest.Ask(ctx, question)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("nicsim answers %q: %w", text, err)
	}
	if !a.OK {
		return a, fmt.Errorf("nicsim on %s: %s", question, a.Error)
	}
	return a, nil
}

// mustAsk is ask where a failure ends the test.
func mustAsk(t testing.TB, format string, args ...any) asked {
	t.Helper()
	a, err := ask(format, args...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// misuse is what the cards have to hold against the drivers since the last call.
func misuse() (list []string) {
	for i := range cards {
		list = append(list, misuseOf(i)...)
	}
	return list
}

// misuseOf is misuse of one card.
func misuseOf(card int) (list []string) {
	a, err := ask(`{"do":"misuse","card":%d}`, card)
	if err == nil {
		_, err = ask(`{"do":"forget","card":%d}`, card)
	}
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range a.Misuse {
		list = append(list, m.Text)
	}
	return list
}

// bind gives both cards to a driver.
func bind(t testing.TB, driver string) {
	t.Helper()
	for _, c := range cards {
		if err := guest.Bind(c, driver); err != nil {
			t.Fatal(err)
		}
	}
}

// within waits until ok, which is asked again and again.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := realTime.Now().Add(limit); !ok(); pause(5 * time.Millisecond) {
		if realTime.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// contains fails unless an error says something.
func contains(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
