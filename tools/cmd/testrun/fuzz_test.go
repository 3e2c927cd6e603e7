package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// TestFuzzTargetsRunSideBySide has two targets wait for each other, and so many more that some have to wait.
func TestFuzzTargetsRunSideBySide(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
	t.Setenv("MARKS", t.TempDir())
	text := `package m
import ("os"; "testing"; "time")
func meet(me, other string) {
	os.WriteFile(os.Getenv("MARKS")+"/"+me, nil, 0o666)
	for range 6000 {
		if _, err := os.Stat(os.Getenv("MARKS")+"/"+other); err == nil { return }
		time.Sleep(10*time.Millisecond)
	}
	panic("the other one did not come")
}
func FuzzA(f *testing.F) { meet("a", "b"); f.Fuzz(func(t *testing.T, b []byte) {}) }
func FuzzB(f *testing.F) { meet("b", "a"); f.Fuzz(func(t *testing.T, b []byte) {}) }
`
	dir := module(t, map[string]string{"m_test.go": text})
	for i := range 3 {
		sub := filepath.Join(dir, fmt.Sprint("p", i))
		if err := os.Mkdir(sub, 0o777); err != nil {
			t.Fatal(err)
		}
		file := "package p\nimport \"testing\"\nfunc FuzzC(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }\n"
		if i == 1 {
			file = "package p\nimport \"testing\"\nfunc FuzzC(f *testing.F) { f.Add([]byte(\"x\")); f.Fuzz(func(t *testing.T, b []byte) { if len(b) > 0 { t.Fatal(\"found\") } }) }\n"
		}
		if err := os.WriteFile(filepath.Join(sub, "p_test.go"), []byte(file), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	ok, err := run(t.Context(), &out, options{name: "fuzz", dir: dir, fuzz: "20x"}, []string{"./..."})
	if err != nil || ok || !strings.HasSuffix(out.String(), "fuzz: 4 passed, 1 failed, 0 skipped\n") {
		t.Fatalf("ok %v, err %v; output:\n%s", ok, err, out.String())
	}
	// What is told of a target stands together: its name, and then nothing of another until the next name.
	blocks := strings.Split(out.String(), "fuzz m")[1:]
	if len(blocks) != 5 {
		t.Fatalf("%d blocks in\n%s", len(blocks), out.String())
	}
	for _, b := range blocks {
		pkg, _, _ := strings.Cut(b, " ")
		if strings.Count(b, "\nok  ")+strings.Count(b, "\nFAIL ") != 1 || !strings.Contains(b, " m"+pkg+" ") ||
			strings.Contains(b, "found") != (pkg == "/p1") {
			t.Errorf("the block of m%s has not just its own line:\n%s", pkg, b)
		}
	}
}

func TestTheFirstErrorEndsWhatRunsBesideIt(t *testing.T) {
	broken := errors.New("broken")
	var began atomic.Int32
	var told []int
	err := sideBySide(t.Context(), 2, 50, func(ctx context.Context, i int) (func() error, error) {
		began.Add(1)
		tell := func() error { told = append(told, i); return nil }
		if i == 0 {
			return tell, broken
		}
		<-ctx.Done() // ended by the error of the first
		return tell, ctx.Err()
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	slices.Sort(told)
	if n := int(began.Load()); n > 2 || len(told) != n {
		t.Errorf("%d began and %v were told", n, told)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sideBySide(ctx, 2, 3, func(context.Context, int) (func() error, error) {
		t.Error("begun after the interruption")
		return func() error { return nil }, nil
	}); err == nil {
		t.Error("an interruption was taken for the end")
	}
}
