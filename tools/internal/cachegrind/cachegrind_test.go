package cachegrind

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

const output = `version: 1
creator: cachegrind-3.19.0
desc: Trace cache: none
cmd: ./x -n 10
events: Ir
fl=/m/x.go
fn=main.op
10 40
11 60
fn=main.main
20 7
fl=/go/runtime/proc.go
fn=runtime.findRunnable
1 1000
fl=/m/x.go
fn=main.op
12 1
summary: 1108
`

func TestOutputIsSummedByFunction(t *testing.T) {
	p, err := Parse(strings.NewReader(output))
	want := Profile{"main.op": 101, "main.main": 7, "runtime.findRunnable": 1000}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestWhatIsNoOutputIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                 "",
		"cut off before events": "version: 1\n",
		"other events":          strings.Replace(output, "events: Ir", "events: Dr Ir", 1),
		"no count":              output + "fn=f\n13\n",
		"no number":             output + "fn=f\n13 x\n",
		"outside a function":    "events: Ir\n1 2\n",
	} {
		if p, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read as %v", name, p)
		}
	}
}

func TestDifferenceLeavesTheOperations(t *testing.T) {
	once := Profile{"main.op": 1100, "main.start": 500, "runtime.memmove": 50, "runtime.findRunnable": 10, "runtime.mallocgc": 90}
	twice := Profile{"main.op": 2100, "main.start": 500, "runtime.memmove": 100, "runtime.findRunnable": 1010, "runtime.mallocgc": 94, "main.late": 2}
	got := Difference(once, twice, 100)
	want := Cost{PerOp: 10.52, LeftOut: 10.04, Lines: []Line{{"main.op", 10}, {"runtime.memmove", 0.5}, {"main.late", 0.02}}}
	if math.Abs(got.PerOp-want.PerOp) > 1e-9 || math.Abs(got.LeftOut-want.LeftOut) > 1e-9 || !reflect.DeepEqual(got.Lines, want.Lines) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOnlyTheRuntimesSchedulingIsLeftOut(t *testing.T) {
	for fn, want := range map[string]bool{
		"main.op": true, "bare.wire/ixgbe.(*rxQueue).Recv": true, "sync/atomic.(*Uint32).Load": true, "syscall.Syscall": true,
		"runtime.memmove": true, "runtime.memclrNoHeapPointers": true, "runtime.mallocgc": true, "runtime.growslice": true,
		"runtime.duffcopy": true, "internal/runtime/maps.(*Map).getWithKey": true, "runtime.gcWriteBarrier2": true,
		"runtime.findRunnable": false, "runtime.sysmon": false, "runtime.futex": false, "runtime.morestack": false,
		"internal/runtime/syscall.Syscall6": false, "???": false, "runtime/pprof.x": true,
	} {
		if Counted(fn) != want {
			t.Errorf("%s: counted is %v", fn, !want)
		}
	}
}

func TestOwnFunctionsAreToldFromTheStandardLibrarys(t *testing.T) {
	for fn, want := range map[string]bool{
		"runtime.memmove": true, "internal/bytealg.Compare": true, "memeqbody": true, "sync.(*Mutex).Lock": true,
		"sync/atomic.(*Uint32).Load": true, "main.main": false, "bare.wire/ixgbe.(*rxQueue).Recv": false,
		"type:.eq.bare.wire/nic.Info": false,
	} {
		if standard(fn) != want {
			t.Errorf("%s: standard is %v", fn, !want)
		}
	}
}

func TestFiguresAreComparedBothWays(t *testing.T) {
	committed := Figures{"same": 100, "better": 100, "just": 100, "worse": 100, "gone": 100}
	measured := Figures{"same": 100, "better": 80, "just": 101.9, "worse": 102.1, "new": 5}
	got := strings.Join(Compare(committed, measured), "\n")
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, "worse: 102.10 instructions, +2.1 %") ||
		!strings.Contains(got, "gone: has a committed figure") || !strings.Contains(got, "new: 5.00 instructions, and no committed") {
		t.Errorf("got:\n%s", got)
	}
}

func TestFiguresSurviveAFile(t *testing.T) {
	f := Figures{"forward/burst=32": 118.25, "recv/burst=1": 90}
	var b strings.Builder
	if err := f.Write(&b, "two\nlines"); err != nil {
		t.Fatal(err)
	}
	back, err := ReadFigures(strings.NewReader(b.String()))
	if err != nil || !reflect.DeepEqual(back, f) || !strings.HasPrefix(b.String(), "# two\n# lines\nforward") {
		t.Errorf("got %v, %v from\n%s", back, err, b.String())
	}
	for _, bad := range []string{"a", "a b", "a 1 2", "a 0", "a NaN", "a 1\na 2"} {
		if f, err := ReadFigures(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read as %v", bad, f)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(output)
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := Parse(strings.NewReader(s)); err == nil {
			if c := Difference(p, p, 7); math.Abs(c.PerOp) > 0 {
				t.Errorf("a profile differs from itself by %v", c)
			}
		}
	})
}
