package mutant

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const described = `# mutants of m
mutant: off-by-one
why:    sums are used
file:   m.go
test:   . TestSum
--- old
	return a + b
--- new
	return a + b + 1
--- end
`

func TestDescriptionIsRead(t *testing.T) {
	got, err := Parse("x.mut", strings.NewReader(described+`
mutant: second
why: x
file: d/f.go
test: ./d TestA|TestB
test: ./e .
flags: -race -tags x
timeout: kills
--- old
a

b
--- new
--- end
`))
	want := []Mutant{
		{Name: "off-by-one", Why: "sums are used", File: "m.go", Tests: []Test{{".", "TestSum"}},
			Old: []string{"\treturn a + b"}, New: []string{"\treturn a + b + 1"}, Source: "x.mut:2"},
		{Name: "second", Why: "x", File: "d/f.go", Tests: []Test{{"./d", "TestA|TestB"}, {"./e", "."}}, Flags: []string{"-race", "-tags", "x"},
			TimeoutKills: true, Old: []string{"a", "", "b"}, Source: "x.mut:12"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestDescriptionThatSaysTooLittleIsRefused(t *testing.T) {
	for name, bad := range map[string]string{
		"no end":        strings.TrimSuffix(described, "--- end\n"),
		"no test":       strings.Replace(described, "test:   . TestSum\n", "", 1),
		"no why":        strings.Replace(described, "why:    sums are used\n", "", 1),
		"no old lines":  strings.Replace(described, "\treturn a + b\n-", "-", 1),
		"new first":     strings.Replace(described, "--- old", "--- new", 1),
		"unknown key":   strings.Replace(described, "why:", "because:", 1),
		"half a test":   strings.Replace(described, ". TestSum", "TestSum", 1),
		"text outside":  "hello\n" + described,
		"key outside":   "why: x\n" + described,
		"two at once":   strings.Replace(described, "why:", "mutant:", 1),
		"other timeout": strings.Replace(described, "why:", "timeout: 3s\nwhy:", 1),
	} {
		if got, err := Parse("x.mut", strings.NewReader(bad)); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestOldLinesMustBeThereOnce(t *testing.T) {
	m := Mutant{Name: "m", File: "f", Old: []string{"b", "c"}, New: []string{"x"}}
	if got, err := m.Apply("a\n\t b\nc\nd\n"); err != nil || got != "a\nx\nd\n" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, text := range []string{"a\nb\n", "b\nc\nb\nc\n", "", "b c\n"} {
		if got, err := m.Apply(text); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// fates runs mutants of a small module.
func fates(t *testing.T, source, test, mutants string, limit time.Duration) []Result {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module m\n\ngo 1.26\n",
		"m.go":      "package m\n\n" + source,
		"m_test.go": "package m\n\nimport \"testing\"\n\n" + test,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Parse("x.mut", strings.NewReader(mutants))
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	results, err := Run(t.Context(), Config{Root: dir, Parallel: 2, Timeout: limit}, all, func(Result) { called++ })
	if err != nil || called != len(all) {
		t.Fatalf("%v; %d results handed over of %d", err, called, len(all))
	}
	return results
}

func TestFates(t *testing.T) {
	const source = "func Sum(a, b int) int {\n\treturn a + b\n}\n"
	const test = `func TestSum(t *testing.T) { if Sum(1, 2) != 3 { t.Fatal("wrong") } }
func TestBlind(t *testing.T) { Sum(1, 2) }
func TestBroken(t *testing.T) { t.Fatal("always") }
`
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(described) }
	for _, c := range []struct {
		name, mutant string
		fate         Fate
		note         string
	}{
		{"a fault that a test sees", described, Killed, "TestSum"},
		{"a fault that no test sees", replace(". TestSum", ". TestBlind"), Survived, ""},
		{"the second test sees it", replace("test:   . TestSum", "test: . TestBlind\ntest: . TestSum"), Killed, "TestSum"},
		{"a panic", replace("return a + b + 1", "panic(a)"), Killed, "TestSum"},
		{"a fault that does not compile", replace("return a + b + 1", "return a +"), Bad, "does not compile"},
		{"a test that fails anyway", replace(". TestSum", ". TestBroken"), Bad, "fails without any mutant"},
		{"a test that is not there", replace(". TestSum", ". TestNone"), Bad, "no test that matches"},
		{"a package that is not there", replace(". TestSum", "./none TestSum"), Bad, "none"},
		{"lines that are not there", replace("\treturn a + b\n", "\treturn b + a\n"), Bad, "not in m.go"},
		{"a file that is not there", replace("m.go", "n.go"), Bad, "n.go"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fates(t, source, test, c.mutant, time.Minute)[0]
			if r.Fate != c.fate || !strings.Contains(r.Note, c.note) {
				t.Errorf("got %v, %q; want %v, %q", r.Fate, r.Note, c.fate, c.note)
			}
		})
	}
}

func TestMutantThatHangs(t *testing.T) {
	const source = "func Loop(n int) {\n\tfor n > 0 {\n\t\tn--\n\t}\n}\n"
	const test = "func TestLoop(t *testing.T) { Loop(3) }\n"
	const hangs = "mutant: hangs\nwhy: x\nfile: m.go\ntest: . TestLoop\n--- old\nn--\n--- new\n--- end\n"
	got := fates(t, source, test, hangs+strings.Replace(hangs, "why:", "timeout: kills\nwhy:", 1), 3*time.Second)
	if got[0].Fate != Bad || !strings.Contains(got[0].Note, "did not end") {
		t.Errorf("undeclared: got %v, %q", got[0].Fate, got[0].Note)
	}
	if got[1].Fate != Killed {
		t.Errorf("declared: got %v, %q", got[1].Fate, got[1].Note)
	}
}
