// Package mutant puts faults into a program on purpose and looks whether a test notices.
//
// A mutant replaces a few whole lines of one file by others. It is compiled through the go command's -overlay, so the tree is not
// touched. It is killed when the tests that it names fail; it survives when they pass; and it is bad when it does not compile,
// when its lines are not found exactly once, or when its tests find nothing to run or fail without it.
//
// The file format, any number of mutants a file:
//
//	# a comment
//	mutant: tail-before-enable
//	why:    the card ignores a tail written to a queue that is not enabled (82599 datasheet 4.6.7)
//	file:   ixgbe/rx.go
//	test:   ./ixgbe TestFirstFrames
//	flags:  -race
//	timeout: kills
//	--- old
//		q.enable()
//		q.writeTail()
//	--- new
//		q.writeTail()
//		q.enable()
//	--- end
//
// `test` is a package and a regular expression for its tests, and may be given several times; `flags` go to go test; with
// `timeout: kills` a run that does not end in time counts as killed. Lines are compared without the white space at their ends.
package mutant

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Mutant is one fault.
type Mutant struct {
	Name, Why    string
	File         string // from the root of the module
	Tests        []Test
	Flags        []string
	TimeoutKills bool
	Old, New     []string // whole lines
	Source       string   // file and line that describe it
}

// Test is one run of go test: a package and a regular expression.
type Test struct{ Package, Run string }

// Parse reads the mutants of a file.
func Parse(file string, r io.Reader) ([]Mutant, error) {
	var all []Mutant
	var m *Mutant
	var into *[]string
	sc := bufio.NewScanner(r)
	n := 0
	fail := func(format string, args ...any) ([]Mutant, error) {
		return nil, fmt.Errorf("%s:%d: %s", file, n, fmt.Sprintf(format, args...))
	}
	for sc.Scan() {
		n++
		line := sc.Text()
		word := strings.TrimSpace(line)
		switch {
		case m != nil && word == "--- old":
			into = &m.Old
		case m != nil && word == "--- new" && into == &m.Old:
			into = &m.New
		case m != nil && word == "--- end" && into == &m.New:
			if err := m.check(); err != nil {
				return fail("%v", err)
			}
			all = append(all, *m)
			m, into = nil, nil
		case strings.HasPrefix(word, "--- "):
			return fail("%q here: the order is `mutant:`, `--- old`, `--- new`, `--- end`", word)
		case into != nil:
			*into = append(*into, line)
		case word == "" || word[0] == '#':
		default:
			key, value, ok := strings.Cut(word, ":")
			value = strings.TrimSpace(value)
			if !ok || value == "" {
				return fail("%q: want `key: value`", word)
			}
			if key == "mutant" {
				if m != nil {
					return fail("mutant %s begins before %s has ended", value, m.Name)
				}
				m = &Mutant{Name: value, Source: fmt.Sprintf("%s:%d", file, n)}
				continue
			}
			if m == nil {
				return fail("%q stands before the first `mutant:`", word)
			}
			if err := m.set(key, value); err != nil {
				return fail("%v", err)
			}
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if m != nil {
		return fail("mutant %s has no `--- end`", m.Name)
	}
	return all, nil
}

func (m *Mutant) set(key, value string) error {
	switch key {
	case "why":
		m.Why = value
	case "file":
		m.File = value
	case "flags":
		m.Flags = strings.Fields(value)
	case "timeout":
		if value != "kills" {
			return fmt.Errorf("timeout: %q: the only value is `kills`", value)
		}
		m.TimeoutKills = true
	case "test":
		f := strings.Fields(value)
		if len(f) != 2 {
			return fmt.Errorf("test: %q: want a package and a regular expression", value)
		}
		m.Tests = append(m.Tests, Test{f[0], f[1]})
	default:
		return fmt.Errorf("%q: the keys are mutant, why, file, test, flags, timeout", key)
	}
	return nil
}

func (m *Mutant) check() error {
	switch {
	case m.Why == "" || m.File == "" || len(m.Tests) == 0:
		return fmt.Errorf("mutant %s needs why, file and test", m.Name)
	case len(m.Old) == 0:
		return fmt.Errorf("mutant %s replaces nothing", m.Name)
	}
	return nil
}

// Apply returns the text with the mutant in it.
func (m *Mutant) Apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	at := -1
	for i := 0; i+len(m.Old) <= len(lines); i++ {
		if !match(lines[i:], m.Old) {
			continue
		}
		if at >= 0 {
			return "", fmt.Errorf("%s: its old lines are in %s twice, at %d and %d", m.Name, m.File, at+1, i+1)
		}
		at = i
	}
	if at < 0 {
		return "", fmt.Errorf("%s: its old lines are not in %s (any more)", m.Name, m.File)
	}
	var out []string
	out = append(out, lines[:at]...)
	out = append(out, m.New...)
	out = append(out, lines[at+len(m.Old):]...)
	return strings.Join(out, "\n"), nil
}

func match(lines, want []string) bool {
	for i, w := range want {
		if strings.TrimSpace(lines[i]) != strings.TrimSpace(w) {
			return false
		}
	}
	return true
}
