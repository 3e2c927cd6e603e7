// Package testjson reads the event stream of `go test -json`, keeps what became of each test, and judges it.
//
// Events go into a [Report] one at a time ([Report.Add]); while they come, a line for each finished package and the whole
// output of whatever failed is written to the report's writer. When the stream has ended, [Report.Verdict] holds the result
// against the list of permitted skips ([Skips]) and gives the counts.
//
// The format of the stream is described by `go doc test2json` and `go help buildjson`.
package testjson

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
)

// Event is one line of `go test -json`: a test event or a build event.
type Event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string // on a package's fail: the ImportPath of the build that failed
	ImportPath  string // of build events
}

// Key names one test: a package's import path and the test's full name, subtests with their slashes.
type Key struct{ Package, Test string }

func (k Key) String() string { return k.Package + " " + k.Test }

type outcome int

const (
	running outcome = iota // begun, and nothing heard since
	passed
	failed
	skipped
)

// Report collects the events of one or more `go test` runs.
type Report struct {
	w        io.Writer
	tests    map[Key]outcome
	output   map[Key]*strings.Builder // of running and failed tests; Test == "" is the package's own output
	build    map[string]*strings.Builder
	packages map[string]outcome
	problems []string // failures that belong to no test
}

// NewReport returns an empty report that writes its progress to w.
func NewReport(w io.Writer) *Report {
	return &Report{
		w:        w,
		tests:    map[Key]outcome{},
		output:   map[Key]*strings.Builder{},
		build:    map[string]*strings.Builder{},
		packages: map[string]outcome{},
	}
}

// Read adds every event of r. A line that is no event (a message of the go command) is passed on as it is.
func (r *Report) Read(in io.Reader) error {
	br := bufio.NewReader(in)
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			var e Event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				r.Add(e)
			} else {
				fmt.Fprint(r.w, line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the test events: %w", err)
		}
	}
}

// Add takes one event.
func (r *Report) Add(e Event) {
	switch {
	case e.Action == "build-output":
		text(r.build, e.ImportPath).WriteString(e.Output)
	case e.Action == "build-fail": // the package's own fail event follows and names this build
	case e.Test != "":
		r.addTest(e)
	default:
		r.addPackage(e)
	}
}

func (r *Report) addTest(e Event) {
	k := Key{e.Package, e.Test}
	switch e.Action {
	case "run":
		if r.tests[k] != failed { // with -count: once failed is failed
			r.tests[k] = running
		}
	case "output":
		text(r.output, k).WriteString(e.Output)
	case "pass", "skip":
		if r.tests[k] != failed {
			r.tests[k] = map[string]outcome{"pass": passed, "skip": skipped}[e.Action]
			delete(r.output, k)
		}
	case "fail":
		r.tests[k] = failed
	}
}

func (r *Report) addPackage(e Event) {
	k := Key{Package: e.Package}
	switch e.Action {
	case "start":
		r.packages[e.Package] = running
	case "output":
		text(r.output, k).WriteString(e.Output)
	case "skip": // no test files
		r.packages[e.Package] = skipped
		delete(r.output, k)
	case "pass":
		r.packages[e.Package] = passed
		r.endPackage(e)
	case "fail":
		r.packages[e.Package] = failed
		r.endPackage(e)
	}
}

// endPackage prints what there is to say about a package that has ended, and drops its output.
func (r *Report) endPackage(e Event) {
	var c Counts
	failures := 0
	for k, o := range r.tests {
		if k.Package != e.Package {
			continue
		}
		if o == running { // cut off: panic, timeout, or an exit from inside the test
			r.tests[k] = failed
			o = failed
			text(r.output, k).WriteString("    this test began and never ended\n")
		}
		if o == failed {
			failures++
		}
	}
	c = r.count(func(k Key) bool { return k.Package == e.Package })
	own := ""
	if b := r.output[Key{Package: e.Package}]; b != nil {
		own = b.String()
	}
	word := "ok  "
	if e.Action == "fail" || failures > 0 {
		word = "FAIL"
		r.printFailures(e, own)
		if failures == 0 {
			why := "failed outside every test"
			if e.FailedBuild != "" {
				why = "does not build"
			}
			r.problems = append(r.problems, e.Package+" "+why)
		}
	}
	cached := ""
	if strings.Contains(own, "(cached)") {
		cached = " (cached)"
	}
	fmt.Fprintf(r.w, "%s %-44s %s  %.1fs%s\n", word, e.Package, c, e.Elapsed, cached)
	for k := range r.output {
		if k.Package == e.Package {
			delete(r.output, k)
		}
	}
}

func (r *Report) printFailures(e Event, own string) {
	if b := r.build[e.FailedBuild]; b != nil {
		fmt.Fprint(r.w, b.String())
	}
	var names []string
	for k, o := range r.tests {
		if k.Package == e.Package && o == failed {
			names = append(names, k.Test)
		}
	}
	sort.Strings(names)
	for _, n := range names {
		fmt.Fprintf(r.w, "---- %s %s\n", e.Package, n)
		if b := r.output[Key{e.Package, n}]; b != nil {
			fmt.Fprint(r.w, b.String())
		}
	}
	if own != "" {
		fmt.Fprint(r.w, own)
	}
}

// Problem records a failure that belongs to no test, such as a go command that ended badly.
func (r *Report) Problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// Failed says whether anything has failed so far, the list of skips left aside.
func (r *Report) Failed() bool {
	if len(r.problems) > 0 {
		return true
	}
	for _, o := range r.packages {
		if o == failed {
			return true
		}
	}
	for _, o := range r.tests {
		if o == failed {
			return true
		}
	}
	return false
}

// Ran is how many different tests, subtests included, have begun.
func (r *Report) Ran() int { return len(r.tests) }

// count counts the leaves: a test that has subtests counts as its subtests, unless it failed and none of them did.
func (r *Report) count(in func(Key) bool) Counts {
	parents := map[Key]bool{}
	explained := map[Key]bool{}
	for k, o := range r.tests {
		for i := strings.LastIndexByte(k.Test, '/'); i >= 0; i = strings.LastIndexByte(k.Test[:i], '/') {
			up := Key{k.Package, k.Test[:i]}
			parents[up] = true
			if o == failed {
				explained[up] = true
			}
		}
	}
	var c Counts
	for k, o := range r.tests {
		if !in(k) || parents[k] && (o != failed || explained[k]) {
			continue
		}
		switch o {
		case passed:
			c.Passed++
		case skipped:
			c.Skipped++
		default:
			c.Failed++
		}
	}
	return c
}

// Counts is the last line of a run.
type Counts struct{ Passed, Failed, Skipped int }

// Add returns the sum of two counts.
func (c Counts) Add(d Counts) Counts {
	return Counts{c.Passed + d.Passed, c.Failed + d.Failed, c.Skipped + d.Skipped}
}

func (c Counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.Passed, c.Failed, c.Skipped)
}

// Verdict is the judgement over a whole run.
type Verdict struct {
	Counts
	Complaints []string // what failed and why, in words
}

// Verdict judges the run. Each complaint counts as one failed. Of the tests that covers says yes to, the run is taken to have been
// asked for all there are, so that one on the list that never showed up is a complaint too; nil says no to all.
func (r *Report) Verdict(skips Skips, covers func(test string) bool) Verdict {
	v := Verdict{Counts: r.count(func(Key) bool { return true })}
	for k, o := range r.tests {
		if o == failed || o == running {
			v.Complaints = append(v.Complaints, k.String()+" failed")
		}
		_, listed := skips[k]
		switch {
		case o == skipped && !listed:
			v.Skipped--
			v.Failed++
			v.Complaints = append(v.Complaints, k.String()+" was skipped and is not on the list of skips: make it decide without skipping, or list it with a reason")
		case o != skipped && listed:
			v.Failed++
			v.Complaints = append(v.Complaints, k.String()+" is on the list of skips and ran: take it off the list")
		}
	}
	for k := range skips {
		if _, seen := r.tests[k]; !seen && covers != nil && covers(k.Test) {
			v.Failed++
			v.Complaints = append(v.Complaints, k.String()+" is on the list of skips and does not exist any more: take it off the list")
		}
	}
	for _, p := range r.problems {
		v.Failed++
		v.Complaints = append(v.Complaints, p)
	}
	sort.Strings(v.Complaints)
	return v
}

// text returns the builder under k, made when there is none.
func text[K comparable](m map[K]*strings.Builder, k K) *strings.Builder {
	b := m[k]
	if b == nil {
		b = &strings.Builder{}
		m[k] = b
	}
	return b
}

// Merge takes over what another report has seen of other tests.
func (r *Report) Merge(other *Report) {
	for k, o := range other.tests {
		if r.tests[k] != failed {
			r.tests[k] = o
		}
	}
	for p, o := range other.packages {
		if r.packages[p] != failed {
			r.packages[p] = o
		}
	}
	r.problems = append(r.problems, other.problems...)
}
