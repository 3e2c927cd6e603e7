// Testrun runs `go test -json`, prints a line for each package and everything about what failed, and holds the skipped tests
// against the list of permitted skips.
//
//	testrun -skips test/skips.txt -complete . -save plain.json ./...    one run; other arguments go to go test
//	testrun -C tools ./...                                              in another module
//	testrun -fuzz 10s ./...                                             every fuzz target, as many at a time as there are processors
//	testrun -sum -failed "vet" plain.json race.json                     adds saved runs up, and stages that failed without one
//
// The last line of -sum is `N passed, N failed, N skipped`. The exit status is 1 when something failed.
package main

import (
	"context"
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
