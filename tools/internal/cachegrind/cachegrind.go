// Package cachegrind counts the instructions of a Go program exactly, by function.
//
// Valgrind's cachegrind executes a program instruction by instruction and writes how many were executed in each function. A run
// of 2N operations minus a run of N operations leaves N operations without start and end: the figures repeat to the instruction,
// because the Go runtime is told to do nothing by the clock (no collection, no preemption) and the functions by which it
// schedules are left out of the sum (see [Counted]).
//
// The format of the output file is in the manual, https://valgrind.org/docs/manual/cg-manual.html#cg-manual.outputformat.
package cachegrind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Profile is instructions by function name.
type Profile map[string]uint64

// Parse reads a cachegrind output file.
func Parse(r io.Reader) (Profile, error) {
	p := Profile{}
	fn, events := "", false
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "events:"):
			if f := strings.Fields(line); len(f) < 2 || f[1] != "Ir" {
				return nil, fmt.Errorf("line %d: %q: want instructions (Ir) first", n, line)
			}
			events = true
		case strings.HasPrefix(line, "fn="):
			fn = line[len("fn="):]
		case line != "" && line[0] >= '0' && line[0] <= '9':
			f := strings.Fields(line)
			if len(f) < 2 || fn == "" {
				return nil, fmt.Errorf("line %d: %q: no count, or outside every function", n, line)
			}
			count, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("line %d: %q: %w", n, line, err)
			}
			p[fn] += count
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("reading cachegrind's output: %w", err)
	}
	if !events {
		return nil, errors.New("no `events:` line: this is no output of cachegrind")
	}
	return p, nil
}

// scheduling matches the functions of the Go runtime that run by the clock or by chance rather than by the operations measured:
// everything of the runtime, but for what compiled code calls to move, compare, allocate, index and convert.
var (
	runtimes  = regexp.MustCompile(`^((runtime|internal/runtime/[a-z]+|internal/chacha8rand|internal/cpu)\.|gosave_systemstack_switch$)`)
	byProgram = regexp.MustCompile(`^runtime\.(mem|duff|malloc|newobject|makeslice|growslice|panic|go[pP]anic|conv|assert|typeAssert|iface|eface|` +
		`interhash|nilinterhash|strhash|strequal|interequal|typedmem|typedslice|bulkBarrier|gcWriteBarrier|wbZero|wbMove|` +
		`chan|selectgo|selectnb|map|concatstring|slicebytetostring|stringtoslicebyte|intstring|cmpstring|` +
		`deferproc|deferreturn|deferconvert|nextFreeFast|\(\*mcache\)|\(\*mspan\)|\(\*mcentral\)|\(\*mheap\))|^internal/runtime/(maps|math)\.`)
)

// Counted says whether a function belongs to the operations.
func Counted(fn string) bool {
	if runtimes.MatchString(fn) {
		return byProgram.MatchString(fn)
	}
	return fn != "???" && !strings.HasPrefix(fn, "_rt0_")
}

// Line is one function's share of an operation.
type Line struct {
	Func  string
	PerOp float64
}

// startupNoise is the share of an operation, in instructions, below which a function of the standard library is taken for the
// rest of program start (threads start when they like, and allocate, and compare strings): one allocation in a thousand
// operations still shows.
const startupNoise = 0.05

// standard says whether a function is the standard library's: its import path begins with a name without a dot, or it has none.
func standard(fn string) bool {
	first, _, slash := strings.Cut(fn, "/")
	return !strings.HasPrefix(fn, "main.") && !(slash && strings.Contains(first, "."))
}

// Cost is the instructions of one operation.
type Cost struct {
	PerOp   float64 // sum of the counted functions
	Lines   []Line  // counted functions, dearest first, without those that do not matter (below 0.005)
	LeftOut float64 // what the others took: scheduling and program start
}

// Difference is the cost of one of n operations, from a run of n and a run of 2n.
func Difference(once, twice Profile, n uint64) Cost {
	var c Cost
	for fn, b := range twice {
		per := (float64(b) - float64(once[fn])) / float64(n)
		if !Counted(fn) || standard(fn) && math.Abs(per) < startupNoise {
			c.LeftOut += per
			continue
		}
		c.PerOp += per
		if per >= 0.005 {
			c.Lines = append(c.Lines, Line{fn, per})
		}
	}
	slices.SortFunc(c.Lines, func(a, b Line) int {
		if a.PerOp != b.PerOp {
			if a.PerOp > b.PerOp {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Func, b.Func)
	})
	return c
}

// environment keeps the Go runtime from doing anything by the clock.
var environment = []string{"GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off", "GOMAXPROCS=1", "GOGC=off"}

// Run runs a program under cachegrind. The error says how to get valgrind when there is none, and holds what the program printed
// when it fails.
func Run(ctx context.Context, program string, args ...string) (Profile, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, fmt.Errorf("%w: install it (Debian, Ubuntu: apt-get install valgrind)", err)
	}
	dir, err := os.MkdirTemp("", "cachegrind")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "out")
	cmd := exec.CommandContext(ctx, "valgrind",
		append([]string{"--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=" + file, program}, args...)...)
	cmd.Env = append(os.Environ(), environment...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s %s under valgrind: %w\n%s", program, strings.Join(args, " "), err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f)
}
