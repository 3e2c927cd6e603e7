// Package gotest reads what a test binary prints with -test.v=test2json and makes a tree of results of it.
//
// In that form each line of the framework's own begins with the character SYN (0x16), which ordinary output does not; "=== NAME T" says whose
// the following lines are (see `go doc test2json`).
package gotest

import (
	"bytes"
	"regexp"
	"strings"
)

// Verdict says how a test ended.
type Verdict string

// The verdicts. A test without one was running when the binary ended.
const (
	Pass Verdict = "PASS"
	Fail Verdict = "FAIL"
	Skip Verdict = "SKIP"
	None Verdict = ""
)

// Test is a test, with what it printed and its subtests in the order in which they were started.
type Test struct {
	Name     string // full, with those of the tests above it
	Verdict  Verdict
	Took     string // as the framework writes it, "0.01s"
	Output   string
	Subtests []*Test

	output strings.Builder // what Output becomes
}

// Base is the last part of a test's name, within the test it is a subtest of.
func (t *Test) Base(parent *Test) string { return strings.TrimPrefix(t.Name, parent.Name+"/") }

// Parser takes what a test binary prints. The zero value is ready.
type Parser struct {
	rest  []byte // a line whose end has not come yet
	tests map[string]*Test
	order []*Test
	now   *Test // whose the next lines are
	// Loose is what belongs to no test: what the binary printed before and after, and how it died.
	loose strings.Builder
}

// maxLine is where a line without an end is cut.
const maxLine = 1 << 20

// Write takes some more output. It does not fail.
func (p *Parser) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		if i < 0 && len(p.rest) < maxLine {
			break
		}
		if i < 0 {
			i = len(p.rest) - 1
		}
		p.line(string(p.rest[:i+1]))
		p.rest = p.rest[i+1:]
	}
	return len(b), nil
}

// Tests returns the tests that are subtests of none, and what belongs to no test. No Write may follow.
func (p *Parser) Tests() (top []*Test, loose string) {
	if len(p.rest) > 0 {
		p.line(string(p.rest))
		p.rest = nil
	}
	for _, t := range p.order {
		t.Output = t.output.String()
		if parent := p.parent(t.Name); parent != nil {
			parent.Subtests = append(parent.Subtests, t)
		} else {
			top = append(top, t)
		}
	}
	p.order = nil
	return top, p.loose.String()
}

// parent is the nearest test above a name: a subtest's own name may have slashes in it.
func (p *Parser) parent(name string) *Test {
	for {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil
		}
		name = name[:i]
		if t := p.tests[name]; t != nil {
			return t
		}
	}
}

const syn = "\x16"

var (
	heading = regexp.MustCompile(`^=== (RUN|NAME|PAUSE|CONT|ATTR|ARTIFACTS)\s+(\S*)`)
	report  = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \((\S+)\)$`)
)

func (p *Parser) line(s string) {
	// Output without a newline at its end is followed by the mark on the same line.
	if before, after, ok := strings.Cut(s, syn); ok {
		if before = strings.TrimLeft(before, " "); before != "" {
			p.text(before + "\n")
		}
		p.mark(strings.TrimRight(after, "\n"))
		return
	}
	p.text(s)
}

// mark takes a line of the framework's.
func (p *Parser) mark(s string) {
	if m := heading.FindStringSubmatch(s); m != nil {
		switch m[1] {
		case "RUN", "NAME", "CONT":
			p.now = nil
			if m[2] != "" {
				p.now = p.test(m[2])
			}
		}
		return
	}
	if m := report.FindStringSubmatch(s); m != nil {
		t := p.test(m[2])
		t.Verdict, t.Took = Verdict(m[1]), m[3]
		p.now = t
		return
	}
	// PASS and FAIL of the whole binary, and what future versions say.
	p.now = nil
	p.text(s + "\n")
}

func (p *Parser) text(s string) {
	if p.now == nil {
		p.loose.WriteString(s)
		return
	}
	p.now.output.WriteString(s)
}

// test finds the test of a name, or makes it.
func (p *Parser) test(name string) *Test {
	if t := p.tests[name]; t != nil {
		return t
	}
	if p.tests == nil {
		p.tests = map[string]*Test{}
	}
	t := &Test{Name: name}
	p.tests[name] = t
	p.order = append(p.order, t)
	return t
}
