package nic

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func TestLinkInWords(t *testing.T) {
	for _, test := range []struct {
		link Link
		want string
	}{
		{Link{}, "down"},
		{Link{Speed: 1e10}, "down"},
		{Link{Up: true}, "up"},
		{Link{Up: true, Speed: 1e10}, "up 10 Gb/s"},
		{Link{Up: true, Speed: 1e9}, "up 1 Gb/s"},
		{Link{Up: true, Speed: 1e8}, "up 100 Mb/s"},
		{Link{Up: true, Speed: 25e8}, "up 2500 Mb/s"},
	} {
		if got := test.link.String(); got != test.want {
			t.Errorf("%#v is %q, want %q", test.link, got, test.want)
		}
	}
}

func TestEveryDropReasonHasAName(t *testing.T) {
	seen := make(map[string]bool)
	for r := range TxDropReason(TxDropReasons) {
		name := r.String()
		if name == "" || strings.Contains(name, "(") || seen[name] {
			t.Errorf("reason %d is called %q", int(r), name)
		}
		seen[name] = true
	}
	for _, r := range []TxDropReason{-1, TxDropReason(TxDropReasons)} {
		if want := "TxDropReason("; !strings.HasPrefix(r.String(), want) {
			t.Errorf("reason %d is called %q", int(r), r)
		}
	}
	if len(Stats{}.TxDropped) != TxDropReasons {
		t.Error("not every reason is counted")
	}
}

// TestCounterIsReadWhileItCounts: from any goroutine, never going back, all of it in the end.
func TestCounterIsReadWhileItCounts(t *testing.T) {
	const adds = 20_000
	var c Counter
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			last := uint64(0)
			for last < 3*adds {
				now := c.Load()
				if now < last || now%3 != 0 {
					t.Errorf("%d after %d", now, last)
					return
				}
				last = now
				runtime.Gosched()
			}
		})
	}
	for i := range adds {
		c.Add(3)
		if i%1000 == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	c.Add(1 << 63)
	if got := c.Load(); got != 3*adds+1<<63 {
		t.Errorf("%d", got)
	}
}

// addHere is where the test below looks for what Counter.Add is compiled to.
//
//go:noinline
func addHere(c *Counter, n uint64) { c.Add(n) }

// TestCounterAddsWithoutALockedInstruction reads the machine code of this very test.
func TestCounterAddsWithoutALockedInstruction(t *testing.T) {
	addHere(new(Counter), 1)
	// Built again: the go command strips the tests that it runs of their symbols.
	program := filepath.Join(t.TempDir(), "nic.test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("go", "tool", "objdump", "-s", `^bare\.wire/nic\.(addHere|publish)`, program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code := string(out)
	for _, name := range []string{"TEXT bare.wire/nic.addHere", "TEXT bare.wire/nic.publish"} {
		if !strings.Contains(code, name) {
			t.Fatalf("no %s in\n%s", name, code)
		}
	}
	// LOCK and XCHG are amd64's; the others arm64's exclusive and atomic read-modify-writes.
	if locked := regexp.MustCompile(`\b(LOCK|XCHG[BWLQ]?|LDAXR|STLXR|LDADDAL[A-Z]*|SWPAL[A-Z]*)\b`).FindString(code); locked != "" {
		t.Errorf("%s in\n%s", locked, code)
	}
}
