package cachegrind

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Figures is instructions per operation by case.
type Figures map[string]float64

// Slack is how far above its committed figure a case may lie.
const Slack = 0.02

// ReadFigures reads lines of the form `case figure`. Empty lines and lines that begin with # mean nothing.
func ReadFigures(r io.Reader) (Figures, error) {
	f := Figures{}
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		w := strings.Fields(line)
		if len(w) != 2 {
			return nil, fmt.Errorf("line %d: %q: want `case figure`", n, line)
		}
		v, err := strconv.ParseFloat(w[1], 64)
		if err != nil || !(v > 0) {
			return nil, fmt.Errorf("line %d: %q: the figure is no positive number", n, line)
		}
		if _, twice := f[w[0]]; twice {
			return nil, fmt.Errorf("line %d: %s stands twice", n, w[0])
		}
		f[w[0]] = v
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("reading the committed figures: %w", err)
	}
	return f, nil
}

// Write writes the figures in the order of their names, under a comment.
func (f Figures) Write(w io.Writer, comment string) error {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for line := range strings.Lines(comment) {
		b.WriteString("# " + strings.TrimRight(line, "\n") + "\n")
	}
	for _, name := range names {
		fmt.Fprintf(&b, "%-40s %8.2f\n", name, f[name])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Compare says in words where measured figures break the committed ones: too dear, not committed, or not measured.
func Compare(committed, measured Figures) []string {
	var faults []string
	for name, m := range measured {
		c, ok := committed[name]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s: %.2f instructions, and no committed figure: write it down with `make cost-update`", name, m))
		case m > c*(1+Slack):
			faults = append(faults, fmt.Sprintf("%s: %.2f instructions, %+.1f %% against the committed %.2f", name, m, (m/c-1)*100, c))
		}
	}
	for name := range committed {
		if _, ok := measured[name]; !ok {
			faults = append(faults, name+": has a committed figure, and no program measures it")
		}
	}
	slices.Sort(faults)
	return faults
}
