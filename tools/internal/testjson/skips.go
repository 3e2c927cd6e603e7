package testjson

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Skips is the list of tests that may be skipped, each with its reason.
type Skips map[Key]string

// ReadSkips reads lines of the form `package TestName reason`. Empty lines and lines that begin with # mean nothing.
func ReadSkips(r io.Reader) (Skips, error) {
	skips := Skips{}
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, fmt.Errorf("line %d: %q: want `package TestName reason`", n, line)
		}
		k := Key{f[0], f[1]}
		if _, twice := skips[k]; twice {
			return nil, fmt.Errorf("line %d: %s is listed twice", n, k)
		}
		skips[k] = strings.Join(f[2:], " ")
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("reading the list of skips: %w", err)
	}
	return skips, nil
}
