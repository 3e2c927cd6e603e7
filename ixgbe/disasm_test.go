package ixgbe_test

import (
	"bufio"
	"bytes"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"bare.wire/mbuf"
)

// hotRoots are where the hot path begins; what they call is followed.
var hotRoots = []string{
	"bare.wire/ixgbe.(*rxQueue).Recv", "bare.wire/ixgbe.(*txQueue).Send", "bare.wire/ixgbe.(*txQueue).Reclaim",
	"bare.wire/pci.(*MappedBAR).Write32", "bare.wire/pci.(*MappedBAR).Read32",
	"bare.wire/mbuf.(*Cache).AllocBulk", "bare.wire/mbuf.(*Cache).FreeBulk",
}

// coldCalls are what the hot path calls less than once a burst, or for frames that share their storage, which have a locked
// count. They are not followed.
var coldCalls = map[string]string{
	"bare.wire/mbuf.(*Cache).refill": "once a magazine",
	"bare.wire/mbuf.(*Cache).spill":  "once a magazine",
	"bare.wire/mbuf.(*Cache).Flush":  "when the pool runs low",
	"bare.wire/mbuf.(*Buf).release":  "shared, external and foreign buffers",
}

// text is one function of a disassembly.
type text struct {
	lines []string // those that lock, or exchange with memory
	calls []string
}

var (
	callLine = regexp.MustCompile(`\bCALL\s+(bare\.wire/\S+)\(SB\)`)
	jumpLine = regexp.MustCompile(`\bJMP\s+(bare\.wire/\S+)\(SB\)`)
	// An exchange with memory locks the bus without saying so; one of two registers does not.
	lockLine = regexp.MustCompile(`\b(LOCK|XCHG[BWLQ]? .*\()`)
)

// disassemble returns the functions of these packages as they are in a test binary. The one that runs has no symbols.
func disassemble(t *testing.T) map[string]*text {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "ixgbe.test")
	if out, err := exec.Command("go", "test", "-c", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v: %s", err, out)
	}
	out, err := exec.Command("go", "tool", "objdump", "-s", `^bare\.wire/(ixgbe|mbuf|nic|pci)\.`, exe).Output()
	if err != nil {
		t.Fatalf("go tool objdump: %v", err)
	}
	all := make(map[string]*text)
	var now *text
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		line := sc.Text()
		if name, ok := strings.CutPrefix(line, "TEXT "); ok {
			name, _, _ = strings.Cut(name, "(SB)")
			name = strings.TrimSuffix(name, ".abi0")
			now = new(text)
			all[name] = now
			continue
		}
		if now == nil {
			continue
		}
		if lockLine.MatchString(line) {
			now.lines = append(now.lines, strings.Join(strings.Fields(line), " "))
		}
		for _, re := range []*regexp.Regexp{callLine, jumpLine} {
			if m := re.FindStringSubmatch(line); m != nil {
				now.calls = append(now.calls, strings.TrimSuffix(m[1], ".abi0"))
			}
		}
	}
	return all
}

// TestHotPathLocksNothing reads the machine code of Recv, Send and Reclaim, and of all that they call for a plain frame:
// no LOCK prefix, and no XCHG with memory, which is a locked access without the prefix (a doorbell by one is a read over the
// bus).
func TestHotPathLocksNothing(t *testing.T) {
	if runtime.GOARCH != "amd64" || raceBuild || mbuf.Checking {
		return // other machines have no such prefix, other builds do more
	}
	all := disassemble(t)
	for _, name := range []string{"bare.wire/mbuf.(*Buf).release", "bare.wire/nic.(*Waiter).Wake"} {
		if f := all[name]; f == nil || len(f.lines) == 0 {
			t.Errorf("%s, which does lock, shows no locked instruction: this test sees nothing", name)
		}
	}
	var todo []string
	for _, name := range hotRoots {
		if all[name] == nil {
			t.Errorf("%s is not in the binary: is it still called that?", name)
			continue
		}
		todo = append(todo, name)
	}
	for name := range coldCalls {
		if all[name] == nil {
			t.Errorf("%s, an exception, is not in the binary", name)
		}
	}
	seen := make(map[string]bool)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if _, cold := coldCalls[name]; cold || seen[name] || all[name] == nil {
			continue
		}
		seen[name] = true
		for _, line := range all[name].lines {
			t.Errorf("%s: %s", name, line)
		}
		todo = append(todo, all[name].calls...)
	}
	for _, want := range []string{"bare.wire/pci.store32", "bare.wire/nic.publish", "bare.wire/ixgbe.collect", "bare.wire/ixgbe.collectNoted",
		"bare.wire/ixgbe.describe", "bare.wire/ixgbe.describePlanned", "bare.wire/ixgbe.(*txQueue).putData"} {
		if !seen[want] {
			t.Errorf("%s was not reached; what was: %v", want, slices.Sorted(maps.Keys(seen)))
		}
	}
}
