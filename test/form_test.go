package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxLines is how long a Go file may be: beyond it, it has more than one subject.
const maxLines = 600

// generated is the line by which a generated file says so (go.dev/s/generatedcode).
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles)+len(p.CgoFiles) > 0 && strings.TrimSpace(p.Doc) == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles, p.IgnoredGoFiles) {
			name := filepath.Join(p.Dir, f)
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(b, []byte("\n")); n > maxLines && !generated.Match(b) {
				t.Errorf("%s/%s has %d lines, more than %d: split it by subject", p.ImportPath, f, n, maxLines)
			}
		}
	}
}

func TestNoCgo(t *testing.T) {
	for _, p := range packages(t) {
		if other := slices.Concat(p.CgoFiles, p.CFiles, p.CXXFiles, p.HFiles, p.SysoFiles); len(other) > 0 {
			t.Errorf("%s has files that are neither Go nor Go assembly: %v", p.ImportPath, other)
		}
	}
}

// TestArchitectureNamesEveryRoom holds the table of rooms in the documentation against the one the tests use.
func TestArchitectureNamesEveryRoom(t *testing.T) {
	doc, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for room := range rooms {
		if !strings.Contains(string(doc), fmt.Sprintf("`%s", room)) {
			t.Errorf("docs/architecture.md does not name %s/", room)
		}
	}
}
