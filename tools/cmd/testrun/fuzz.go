package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"bare.wire/tools/internal/testjson"
)

// target is one fuzz target.
type target struct{ pkg, name string }

func fuzzAll(ctx context.Context, w io.Writer, r *testjson.Report, o options, args []string) error {
	targets, err := fuzzTargets(r, o.dir, args)
	if err != nil {
		return err
	}
	workers := max(1, min(runtime.GOMAXPROCS(0), len(targets)))
	fmt.Fprintf(w, "%d fuzz targets, %s each, %d at a time\n", len(targets), o.fuzz, workers)
	return sideBySide(ctx, workers, len(targets), func(ctx context.Context, i int) (func() error, error) {
		var out bytes.Buffer
		fmt.Fprintln(&out, "fuzz", targets[i].pkg, targets[i].name)
		one, err := fuzzOne(ctx, &out, o, targets[i])
		return func() error {
			if one != nil {
				r.Merge(one)
			}
			_, err := out.WriteTo(w)
			return err
		}, err
	})
}

// sideBySide calls do for 0 … n−1 from several goroutines, and what each call returns to be told, one at a time. After the first
// error no further call begins and the context of those under way is cancelled; they are waited for, and that error is returned.
func sideBySide(ctx context.Context, workers, n int, do func(ctx context.Context, i int) (tell func() error, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		next  atomic.Int64
		one   sync.Mutex // held while something is told; guards first
		first error
		all   sync.WaitGroup
	)
	for range workers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return
				}
				tell, err := do(ctx, i)
				one.Lock()
				err = errors.Join(err, tell())
				if err != nil && first == nil { // the others fail because they are cancelled
					first = err
					cancel()
				}
				one.Unlock()
			}
		})
	}
	all.Wait()
	if first == nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return first
}

// fuzzTries bounds how often a fuzz run that was cut off by its own deadline is run.
const fuzzTries = 3

// fuzzOne fuzzes one target by one process, and writes to w what there is to say about it. A run that fails with nothing but the
// deadline of -fuzztime has found no bad input: before Go 1.27 the go command now and then takes its own deadline for a failure
// (golang.org/issue/75804), so such a run is run again.
func fuzzOne(ctx context.Context, w io.Writer, o options, t target) (*testjson.Report, error) {
	args := []string{"-run=^$", "-fuzz=^" + t.name + "$", "-fuzztime=" + o.fuzz, "-fuzzminimizetime=10x", "-parallel=1", t.pkg}
	for try := 1; ; try++ {
		var out bytes.Buffer
		one := testjson.NewReport(&out)
		if err := goTest(ctx, one, o.dir, args); err != nil {
			return nil, err
		}
		if try < fuzzTries && one.Failed() && onlyDeadline(out.String()) {
			fmt.Fprintln(w, "  the end of the time was reported as a failure; again")
			continue
		}
		_, err := out.WriteTo(w)
		return one, err
	}
}

// onlyDeadline says whether the output of a failed fuzz run names the deadline and no input.
func onlyDeadline(out string) bool {
	return strings.Contains(out, "context deadline exceeded") && !strings.Contains(out, "Failing input written to") &&
		!strings.Contains(out, "panic:")
}

// fuzzTargets asks go test for the fuzz targets of some packages. A package that does not build is a problem of the report, and
// the others are fuzzed.
func fuzzTargets(r *testjson.Report, dir string, args []string) ([]target, error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-list", "^Fuzz"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("go test -list: %w", err)
	}
	targets, broken := listed(out)
	for _, pkg := range broken {
		r.Problem("%s does not build, so its fuzz targets did not run", pkg)
	}
	if err != nil && len(broken) == 0 {
		r.Problem("go test -list %s: %v", strings.Join(args, " "), err)
	}
	return targets, nil
}

// listed picks the names, and the packages that failed, out of the events of go test -json -list.
func listed(events []byte) (targets []target, broken []string) {
	for line := range bytes.Lines(events) {
		var e testjson.Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		name := strings.TrimSpace(e.Output)
		switch {
		case e.Action == "fail" && e.Test == "":
			broken = append(broken, e.Package)
		case e.Action == "output" && strings.HasPrefix(name, "Fuzz") && !strings.ContainsAny(name, " \t"):
			targets = append(targets, target{e.Package, name})
		}
	}
	return targets, broken
}
