package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bare.wire/tools/internal/testjson"
)

// module writes a small module and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	dir := t.TempDir()
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRunOfARealModule(t *testing.T) {
	const head = "package m\nimport \"testing\"\n"
	for _, c := range []struct {
		name, test, skips string
		ok                bool
		last              string
	}{
		{"passes", "func TestA(t *testing.T) {}", "", true, "tests: 1 passed, 0 failed, 0 skipped"},
		{"fails", "func TestA(t *testing.T) { t.Fatal(1) }", "", false, "tests: 0 passed, 1 failed, 0 skipped"},
		{"skips", "func TestA(t *testing.T) { t.Skip() }", "", false, "tests: 0 passed, 1 failed, 0 skipped"},
		{"skips by leave", "func TestA(t *testing.T) { t.Skip() }", "m TestA because", true, "tests: 0 passed, 0 failed, 1 skipped"},
		{"does not build", "func TestA(t *testing.T) { x }", "", false, "tests: 0 passed, 1 failed, 0 skipped"},
		{"panics", "func TestA(t *testing.T) { panic(1) }", "", false, "tests: 0 passed, 1 failed, 0 skipped"},
		{"has nothing to run", "var _ testing.T", "", false, "tests: 0 passed, 1 failed, 0 skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := module(t, map[string]string{"m_test.go": head + c.test, "skips.txt": c.skips})
			var out bytes.Buffer
			ok, err := run(t.Context(), &out, options{name: "tests", dir: dir, skips: filepath.Join(dir, "skips.txt"), covers: func(string) bool { return true }}, []string{"./..."})
			if err != nil || ok != c.ok {
				t.Fatalf("ok %v, err %v, want %v; output:\n%s", ok, err, c.ok, out.String())
			}
			if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); lines[len(lines)-1] != c.last {
				t.Errorf("last line of\n%s\nis not %q", out.String(), c.last)
			}
		})
	}
}

func TestWhichTestsARunCovers(t *testing.T) {
	for _, c := range []struct {
		flag, test string
		want       bool
	}{
		{".", "TestA", true}, {"^TestGuest", "TestGuestX/y", true}, {"^TestGuest", "TestA", false},
		{"!^TestGuest", "TestGuestX/y", false}, {"!^TestGuest", "TestA", true},
	} {
		covers, err := covering(c.flag)
		if err != nil || covers(c.test) != c.want {
			t.Errorf("%s, %s: want %v, %v", c.flag, c.test, c.want, err)
		}
	}
	if covers, err := covering(""); covers != nil || err != nil {
		t.Errorf("none: %v", err)
	}
	if _, err := covering("!("); err == nil {
		t.Error("a pattern that is none was accepted")
	}
}

// TestWhoInterruptsWaitsForTheTests has a test clear something away once it is interrupted.
func TestWhoInterruptsWaitsForTheTests(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("MARKS", tmp)
	dir := module(t, map[string]string{"m_test.go": `package m
import ("os"; "os/signal"; "testing"; "time")
func TestA(t *testing.T) {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt)
	os.WriteFile(os.Getenv("MARKS")+"/began", nil, 0o666)
	<-stopped
	time.Sleep(100 * time.Millisecond)
	os.WriteFile(os.Getenv("MARKS")+"/tidied", nil, 0o666)
}`})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, io.Discard, options{name: "tests", dir: dir}, []string{"./..."})
		ended <- err
	}()
	for {
		time.Sleep(time.Millisecond)
		if _, err := os.Stat(filepath.Join(tmp, "began")); err == nil {
			break
		}
		if len(ended) > 0 {
			t.Fatal(<-ended)
		}
	}
	cancel()
	if err := <-ended; err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(tmp, "tidied")); err != nil {
		t.Error(err)
	}
}

func TestFuzzingFindsTargetsAndTheirFaults(t *testing.T) {
	dir := module(t, map[string]string{"m_test.go": `package m
import "testing"
func TestNotThis(t *testing.T) { t.Fatal() }
func FuzzGood(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }
func FuzzBad(f *testing.F) { f.Add([]byte("x")); f.Fuzz(func(t *testing.T, b []byte) { if len(b) != 0 { t.Fatal("found") } }) }
`})
	var out bytes.Buffer
	ok, err := run(t.Context(), &out, options{name: "fuzz", dir: dir, fuzz: "100x"}, []string{"./..."})
	if err != nil || ok {
		t.Fatalf("ok %v, err %v; output:\n%s", ok, err, out.String())
	}
	for _, want := range []string{"2 fuzz targets", "fuzz m FuzzGood", "found", "* m FuzzBad failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestFuzzingGoesOnPastAPackageThatDoesNotBuild(t *testing.T) {
	dir := module(t, map[string]string{"m_test.go": "package m\nimport \"testing\"\nfunc FuzzGood(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }\n"})
	if err := os.Mkdir(filepath.Join(dir, "bad"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad", "b_test.go"), []byte("package bad\nvar x = y\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ok, err := run(t.Context(), &out, options{name: "fuzz", dir: dir, fuzz: "10x"}, []string{"./..."})
	if err != nil || ok || !strings.Contains(out.String(), "* m/bad does not build") || !strings.HasSuffix(out.String(), "fuzz: 1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("ok %v, err %v; output:\n%s", ok, err, out.String())
	}
}

func TestDeadlineAloneIsNoFinding(t *testing.T) {
	if !onlyDeadline("--- FAIL: FuzzX (10.1s)\n    context deadline exceeded\n") {
		t.Error("the deadline was taken for a finding")
	}
	if onlyDeadline("context deadline exceeded\nFailing input written to testdata/fuzz/FuzzX/1\n") || onlyDeadline("panic: x\ncontext deadline exceeded") {
		t.Error("a finding was taken for the deadline")
	}
}

func TestSumEndsWithTheCountsAlone(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "sub", "b")
	for f, c := range map[string]testjson.Counts{a: {Passed: 3, Skipped: 1}, b: {Passed: 4, Failed: 2}} {
		if err := (testjson.Saved{Name: f, Counts: c}).Save(f); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	ok, err := addUp(&out, []string{a, b}, nil)
	if err != nil || ok || !strings.HasSuffix(out.String(), "\n7 passed, 2 failed, 1 skipped\n") {
		t.Errorf("ok %v, err %v, output:\n%s", ok, err, out.String())
	}
	if ok, err := addUp(&out, []string{a}, nil); !ok || err != nil {
		t.Errorf("a good run: ok %v, err %v", ok, err)
	}
	if _, err := addUp(&out, []string{filepath.Join(dir, "absent")}, nil); err == nil {
		t.Error("a run that was never saved was added up")
	}
	out.Reset()
	if ok, err := addUp(&out, []string{a}, []string{"vet"}); ok || err != nil || !strings.HasSuffix(out.String(), "\n3 passed, 1 failed, 1 skipped\n") {
		t.Errorf("a stage that failed: ok %v, err %v, output:\n%s", ok, err, out.String())
	}
}
