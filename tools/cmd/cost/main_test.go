package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestMeasuredTwiceIsTheSame measures the fixture twice. The tests need valgrind, as `make cost` does.
func TestMeasuredTwiceIsTheSame(t *testing.T) {
	o := options{dir: "testdata/costbench", pick: regexp.MustCompile(""), file: filepath.Join(t.TempDir(), "cost.txt")}
	o.update = true
	if faults, err := run(t.Context(), o, []string{"."}); err != nil || len(faults) > 0 {
		t.Fatalf("%v, %q", err, faults)
	}
	first, err := os.ReadFile(o.file)
	if err != nil {
		t.Fatal(err)
	}
	again := o
	again.update = false
	if faults, err := run(t.Context(), again, []string{"."}); err != nil || len(faults) > 0 {
		t.Fatalf("%v, %q", err, faults)
	}
	if faults, err := run(t.Context(), o, []string{"."}); err != nil || len(faults) > 0 {
		t.Fatalf("%v, %q", err, faults)
	}
	second, err := os.ReadFile(o.file)
	if err != nil {
		t.Fatal(err)
	}
	// What the program itself does repeats to the instruction; what the allocator does, nearly.
	figure := regexp.MustCompile(`(?m)^sum +([0-9.]+)$`)
	a, b := figure.FindSubmatch(first), figure.FindSubmatch(second)
	if a == nil || b == nil || string(a[1]) != string(b[1]) {
		t.Errorf("first:\n%ssecond:\n%s", first, second)
	}

	// A figure that was better once is a fault now.
	better := regexp.MustCompile(`(sum +)[0-9.]+`).ReplaceAllString(string(first), "${1}20.00")
	if better == string(first) {
		t.Fatalf("no figure for sum in:\n%s", first)
	}
	if err := os.WriteFile(o.file, []byte(better), 0o666); err != nil {
		t.Fatal(err)
	}
	o.update = false
	faults, err := run(t.Context(), o, []string{"."})
	if err != nil || len(faults) != 1 || !strings.HasPrefix(faults[0], "sum: ") {
		t.Errorf("got %q, %v", faults, err)
	}
}

func TestCasesAreListed(t *testing.T) {
	got, err := parseList([]byte("forward/burst=32\n\nrecv 500\n"))
	if err != nil || !reflect.DeepEqual(got, []benchCase{{"forward/burst=32", usualOps}, {"recv", 500}}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "a x", "a 0", "a 1 2", "a -1"} {
		if got, err := parseList([]byte(bad)); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestProgramThatFailsIsAnError(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module m\n\ngo 1.26\n",
		"main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() {\n\tif len(os.Args) > 2 {\n\t\tpanic(\"it broke\")\n\t}\n\tfmt.Println(\"x\")\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	_, err := run(t.Context(), options{dir: dir, pick: regexp.MustCompile("")}, []string{"."})
	if err == nil || !strings.Contains(err.Error(), "it broke") {
		t.Errorf("got %v", err)
	}
}
