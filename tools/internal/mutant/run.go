package mutant

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"bare.wire/tools/internal/testjson"
)

// Fate is what became of a mutant.
type Fate int

const (
	Survived Fate = iota // its tests passed
	Killed               // a test failed
	Bad                  // it says nothing: see Result.Note
)

func (f Fate) String() string { return [...]string{"SURVIVED", "killed", "BAD"}[f] }

// Result is what became of one mutant.
type Result struct {
	Mutant
	Fate Fate
	Note string // the tests that killed it, or why it is bad
	Took time.Duration
}

// Config says how to run.
type Config struct {
	Root     string        // of the module
	Parallel int           // mutants at a time; at least 1
	Timeout  time.Duration // for one run of a test binary
}

// buildLimit bounds the building of one test binary.
const buildLimit = 10 * time.Minute

// Run runs every mutant and returns the results in the same order; each is also handed to done when it is known (calls do not
// overlap). An error means that nothing could be run.
func Run(ctx context.Context, c Config, mutants []Mutant, done func(Result)) ([]Result, error) {
	root, err := filepath.Abs(c.Root)
	if err != nil {
		return nil, err
	}
	c.Root = root
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)

	healthy := baselines{c: c, seen: map[string]error{}}
	results := make([]Result, len(mutants))
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, max(1, c.Parallel))
	for i, m := range mutants {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			dir := filepath.Join(tmp, fmt.Sprint(i))
			r := Result{Mutant: m}
			r.Fate, r.Note = c.one(ctx, dir, m, &healthy)
			r.Took = time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			results[i] = r
			done(r)
		})
	}
	wg.Wait()
	return results, ctx.Err()
}

// one runs one mutant, with its files in dir.
func (c Config) one(ctx context.Context, dir string, m Mutant, healthy *baselines) (Fate, string) {
	original := filepath.Join(c.Root, filepath.FromSlash(m.File))
	text, err := os.ReadFile(original)
	if err != nil {
		return Bad, err.Error()
	}
	mutated, err := m.Apply(string(text))
	if err != nil {
		return Bad, err.Error()
	}
	overlay, err := writeOverlay(dir, original, mutated)
	if err != nil {
		return Bad, err.Error()
	}
	for _, t := range m.Tests {
		if err := healthy.check(ctx, t, m.Flags); err != nil {
			return Bad, err.Error()
		}
		o := c.test(ctx, t, append([]string{"-overlay=" + overlay}, m.Flags...))
		switch {
		case o.err != nil:
			return Bad, o.err.Error()
		case o.timeout && !m.TimeoutKills:
			return Bad, fmt.Sprintf("%s %s did not end within %v; a test should fail sooner, or say `timeout: kills`", t.Package, t.Run, c.Timeout)
		case o.timeout:
			return Killed, t.Run + " (did not end)"
		case o.noBuild != "":
			return Bad, "does not compile:\n" + o.noBuild
		case len(o.failed) > 0:
			return Killed, strings.Join(o.failed, " ")
		}
	}
	return Survived, ""
}

// baselines keeps what the tests do without a mutant.
type baselines struct {
	c    Config
	mu   sync.Mutex
	seen map[string]error
}

// check says why a test can judge no mutant: it fails by itself, or there is none.
func (b *baselines) check(ctx context.Context, t Test, flags []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fmt.Sprint(t, flags)
	err, known := b.seen[key]
	if !known {
		o := b.c.test(ctx, t, flags)
		switch {
		case o.err != nil:
			err = o.err
		case o.noBuild != "":
			err = fmt.Errorf("%s does not build, without any mutant:\n%s", t.Package, o.noBuild)
		case o.timeout || len(o.failed) > 0:
			err = fmt.Errorf("%s %s fails without any mutant: %v", t.Package, t.Run, o.failed)
		case o.ran == 0:
			err = fmt.Errorf("%s has no test that matches %s", t.Package, t.Run)
		}
		b.seen[key] = err
	}
	return err
}

// outcome is what one run of go test did.
type outcome struct {
	failed  []string // names of tests, or of the package when it failed outside every test
	ran     int
	noBuild string
	timeout bool
	err     error
}

func (c Config) test(ctx context.Context, t Test, flags []string) outcome {
	ctx, cancel := context.WithTimeout(ctx, buildLimit+c.Timeout)
	defer cancel()
	// The first failure is enough.
	args := slices.Concat([]string{"test", "-json", "-count=1", "-failfast", "-vet=off", "-timeout=" + c.Timeout.String()}, flags, []string{"-run", t.Run, t.Package})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.Root
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the test binary with its go command
	cmd.WaitDelay = 5 * time.Second
	runErr := cmd.Run()
	if ctx.Err() != nil {
		return outcome{err: fmt.Errorf("go test %s: %w", t.Package, ctx.Err())}
	}
	return judge(stdout.Bytes(), stderr.String(), runErr)
}

// judge reads the events of a run that has ended.
func judge(events []byte, stderr string, runErr error) outcome {
	var o outcome
	var build strings.Builder
	packageFailed := ""
	for line := range bytes.Lines(events) {
		var e testjson.Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch {
		case e.Action == "build-output":
			build.WriteString(e.Output)
		case e.Action == "build-fail":
			o.noBuild = build.String()
		case e.Action == "run":
			o.ran++
		case e.Action == "output" && strings.HasPrefix(e.Output, "panic: test timed out after "):
			o.timeout = true
		case e.Action == "fail" && e.Test != "" && !strings.Contains(e.Test, "/"):
			o.failed = append(o.failed, e.Test)
		case e.Action == "fail" && e.Test == "":
			packageFailed = e.Package
		}
	}
	if packageFailed != "" && len(o.failed) == 0 && o.noBuild == "" {
		o.failed = []string{packageFailed}
	}
	if runErr != nil && len(o.failed) == 0 && o.noBuild == "" {
		o.err = fmt.Errorf("go test: %w\n%s", runErr, stderr)
	}
	return o
}

// writeOverlay writes the mutated file and the overlay that puts it in the original's place; it returns the overlay's name.
func writeOverlay(dir, original, mutated string) (string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	file := filepath.Join(dir, filepath.Base(original))
	if err := os.WriteFile(file, []byte(mutated), 0o666); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o666)
}
