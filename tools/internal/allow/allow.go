// Package allow reads the lists of exceptions that the analyzers honour.
//
// A list is a text file with lines `file:function reason`; the file is named from the root of the module, a method as
// Type.Method, and a declaration outside every function as `file:-`. Empty lines and lines that begin with # mean nothing.
// An exception that excuses nothing is itself reported, so that the lists stay true.
package allow

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Entry is one exception.
type Entry struct {
	File, Func string
	Reason     string
}

// List is a whole list, in the order of its file.
type List []Entry

// Read reads a list.
func Read(r io.Reader) (List, error) {
	var l List
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		place, reason, _ := strings.Cut(line, " ")
		file, fn, ok := strings.Cut(place, ":")
		reason = strings.TrimSpace(reason)
		if !ok || file == "" || fn == "" || reason == "" {
			return nil, fmt.Errorf("line %d: %q: want `file:function reason`", n, line)
		}
		l = append(l, Entry{filepath.ToSlash(file), fn, reason})
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("reading a list of exceptions: %w", err)
	}
	return l, nil
}

// Load reads the list in a file; a file that does not exist is an empty list.
func Load(file string) (List, error) {
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return l, nil
}

// Index returns the place of the entry for a function, or -1.
func (l List) Index(file, fn string) int {
	for i, e := range l {
		if e.File == file && e.Func == fn {
			return i
		}
	}
	return -1
}
