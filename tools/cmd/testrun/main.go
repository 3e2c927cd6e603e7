// Testrun runs `go test -json`, prints a line for each package and everything about what failed, and holds the skipped tests
// against the list of permitted skips.
//
//	testrun -skips test/skips.txt -complete . -save plain.json ./...    one run; other arguments go to go test
//	testrun -C tools ./...                                              in another module
//	testrun -fuzz 10s ./...                                             every fuzz target, one after the other
//	testrun -sum -failed "vet" plain.json race.json                     adds saved runs up, and stages that failed without one
//
// The last line of -sum is `N passed, N failed, N skipped`. The exit status is 1 when something failed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"bare.wire/tools/internal/testjson"
)

func main() {
	var o options
	sum := flag.Bool("sum", false, "add up the saved runs named by the arguments")
	flag.StringVar(&o.name, "name", "tests", "what to call this run")
	flag.StringVar(&o.dir, "C", ".", "directory to run in")
	flag.StringVar(&o.skips, "skips", "", "file that lists the permitted skips (none: no skip is permitted)")
	complete := flag.String("complete", "", "regexp of the tests that the run covers, or ! and one of those that it does not: a listed one among them that does not exist fails")
	flag.StringVar(&o.save, "save", "", "file to write the counts to")
	flag.StringVar(&o.fuzz, "fuzz", "", "fuzz every target of these packages for that long")
	stages := flag.String("failed", "", "with -sum: names of stages that failed and saved no counts, with spaces")
	flag.Parse()
	covers, err := covering(*complete)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun: -complete:", err)
		os.Exit(2)
	}
	o.covers = covers

	// Who stops us stops go test, and that its tests, which may have virtual machines and directories to clear away: they are waited for.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second time, at once
	var ok bool
	if *sum {
		ok, err = addUp(os.Stdout, flag.Args(), strings.Fields(*stages))
	} else {
		ok, err = run(ctx, os.Stdout, o, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

type options struct {
	name, dir, skips, save, fuzz string
	covers                       func(test string) bool // see Verdict
}

// covering reads -complete.
func covering(s string) (func(test string) bool, error) {
	if s == "" {
		return nil, nil
	}
	pattern, not := strings.CutPrefix(s, "!")
	re, err := regexp.Compile(pattern)
	return func(test string) bool { return re.MatchString(test) != not }, err
}

func run(ctx context.Context, w io.Writer, o options, args []string) (bool, error) {
	skips, err := readSkips(o.skips)
	if err != nil {
		return false, err
	}
	r := testjson.NewReport(w)
	if o.fuzz != "" {
		err = fuzzAll(ctx, w, r, o, args)
	} else {
		err = goTest(ctx, r, o.dir, args)
		if err == nil && r.Ran() == 0 && !r.Failed() {
			r.Problem("no test ran: go test %s", strings.Join(args, " "))
		}
	}
	if err != nil {
		return false, err
	}
	v := r.Verdict(skips, o.covers)
	for _, c := range v.Complaints {
		fmt.Fprintln(w, "  *", c)
	}
	fmt.Fprintf(w, "%s: %s\n", o.name, v.Counts)
	if err := (testjson.Saved{Name: o.name, Counts: v.Counts, Complaints: v.Complaints}).Save(o.save); err != nil {
		return false, err
	}
	return v.Failed == 0, nil
}

// tidyTime is how long tests that are interrupted have to clear away what they have made.
const tidyTime = 30 * time.Second

// goTest runs `go test -json args` in dir and adds its events. An error means that go test could not be run at all, or was interrupted.
func goTest(ctx context.Context, r *testjson.Report, dir string, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	// A process group of its own: the go command does not hand an interruption on to the tests, and a terminal would to some twice.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = tidyTime
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go test (is the go command on the PATH?): %w", err)
	}
	if err := r.Read(out); err != nil {
		return err
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be nobody left
		return errors.New("interrupted")
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("go test: %w", err)
	}
	if err != nil && !r.Failed() {
		r.Problem("go test %s: %v", strings.Join(args, " "), err)
	}
	return nil
}

// target is one fuzz target.
type target struct{ pkg, name string }

func fuzzAll(ctx context.Context, w io.Writer, r *testjson.Report, o options, args []string) error {
	targets, err := fuzzTargets(r, o.dir, args)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d fuzz targets, %s each\n", len(targets), o.fuzz)
	for _, t := range targets {
		fmt.Fprintln(w, "fuzz", t.pkg, t.name)
		if err := fuzzOne(ctx, w, r, o, t); err != nil {
			return err
		}
	}
	return nil
}

// fuzzTries bounds how often a fuzz run that was cut off by its own deadline is run.
const fuzzTries = 3

// fuzzOne fuzzes one target. A run that fails with nothing but the deadline of -fuzztime has found no bad input: before Go 1.27
// the go command now and then takes its own deadline for a failure (golang.org/issue/75804), so such a run is run again.
func fuzzOne(ctx context.Context, w io.Writer, r *testjson.Report, o options, t target) error {
	args := []string{"-run=^$", "-fuzz=^" + t.name + "$", "-fuzztime=" + o.fuzz, "-fuzzminimizetime=10x", t.pkg}
	for try := 1; ; try++ {
		var out bytes.Buffer
		one := testjson.NewReport(&out)
		if err := goTest(ctx, one, o.dir, args); err != nil {
			return err
		}
		if try < fuzzTries && one.Failed() && onlyDeadline(out.String()) {
			fmt.Fprintln(w, "  the end of the time was reported as a failure; again")
			continue
		}
		r.Merge(one)
		_, err := out.WriteTo(w)
		return err
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

func readSkips(file string) (testjson.Skips, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("the list of permitted skips: %w", err)
	}
	defer f.Close()
	s, err := testjson.ReadSkips(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// addUp prints saved runs, and stages that failed without any, and their sum.
func addUp(w io.Writer, files, stages []string) (bool, error) {
	var runs []testjson.Saved
	for _, f := range files {
		s, err := testjson.LoadSaved(f)
		if err != nil {
			return false, err
		}
		runs = append(runs, s)
	}
	for _, s := range stages {
		runs = append(runs, testjson.Saved{Name: s, Counts: testjson.Counts{Failed: 1}, Complaints: []string{"make " + s + " failed"}})
	}
	return testjson.AddUp(w, runs).Failed == 0, nil
}
