package docsh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBlocksAreFound(t *testing.T) {
	doc := strings.Join([]string{
		"# Title",            // 1
		"```sh ci",           // 2
		"echo one",           // 3
		"```",                // 4
		"```go",              // 5
		"x := `sh`",          // 6
		"```",                // 7
		"1. a list",          // 8
		"   ```sh hardware",  // 9
		"   run",             // 10
		"     it",            // 11
		"   ```",             // 12
		"~~~~sh guest",       // 13
		"cat <<E",            // 14
		"```sh",              // 15: inside the other fence
		"~~~",                // 16: too short to close it
		"~~~~",               // 17
		"`inline` and ``` x", // 18
		"```",                // 19
		"no shell",           // 20
		"```",                // 21
		"```text",            // 22
		"sh",                 // 23
		"```",                // 24
		"```sh ci realtime",  // 25
		"sleep 1",            // 26
		"```",                // 27
	}, "\n")
	got, err := Find("d.md", strings.NewReader(doc))
	want := []Block{
		{"d.md", 3, "ci", "echo one\n", 1},
		{"d.md", 10, "hardware", "run\n  it\n", 1},
		{"d.md", 14, "guest", "cat <<E\n```sh\n~~~\n", 1},
		{"d.md", 26, "ci", "sleep 1\n", 5},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

func TestShellFenceThatSaysNothingIsAnError(t *testing.T) {
	for _, info := range []string{"sh", "bash", "shell", "console", "sh CI", "sh ci guest", "bash ci", "sh laptop", "sh guest realtime", "sh ci fast"} {
		_, err := Find("d.md", strings.NewReader("x\n```"+info+"\nls\n```\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "d.md:2: ") {
			t.Errorf("%q: got %v", info, err)
		}
	}
	if _, err := Find("d.md", strings.NewReader("```sh ci\nls\n")); err == nil {
		t.Error("a fence that is never closed was accepted")
	}
}

func runText(t *testing.T, text string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(t.Context(), t.TempDir(), os.Environ(), nil, Block{"d.md", 40, "ci", text, 1}, &out)
	return out.String(), err
}

func TestBlockThatWorks(t *testing.T) {
	out, err := runText(t, "a=1\necho $((a+1)) | cat\n")
	if err != nil || out != "2\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestFailureNamesTheLineOfTheDocument(t *testing.T) {
	for _, c := range []struct{ name, text, line string }{
		{"a command", "true\nfalse\ntrue\n", "d.md:41: "},
		{"the front of a pipe", "true\ntrue\nfalse | cat\n", "d.md:42: "},
		{"a variable that is not set", "true\necho $nothing_of_that_name\n", "line 41: "},
		{"inside a function", "f() {\nfalse\n}\nf\n", "d.md:41: "},
	} {
		out, err := runText(t, c.text)
		if err == nil || !strings.Contains(err.Error(), "d.md:40") || !strings.Contains(out, c.line) {
			t.Errorf("%s: got %q, %v; want %q", c.name, out, err, c.line)
		}
	}
}

func TestBlockRunsElsewhere(t *testing.T) {
	var out bytes.Buffer
	in := []string{"env", "WHERE=elsewhere"}
	err := Run(t.Context(), t.TempDir(), os.Environ(), in, Block{"d.md", 40, "guest", "echo $WHERE\nfalse\n", 1}, &out)
	if err == nil || !strings.HasPrefix(out.String(), "elsewhere\nd.md:41: ") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestBlockThatHangsIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	done := make(chan error)
	var out bytes.Buffer
	go func() {
		done <- Run(ctx, dir, os.Environ(), nil, Block{"d.md", 1, "ci", "echo > began; sleep 1000 & wait", 1}, &out)
	}()
	for { // it has begun before it is ended
		if _, err := os.Stat(filepath.Join(dir, "began")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "not finished in time") {
		t.Errorf("got %v", err)
	}
}

func TestWhatRunsABlockElsewhereMayTidyUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	// A guest that takes Ctrl-C, and of which a child does not.
	in := []string{"sh", "-c", `trap "" INT; sleep 1000 >&- 2>&- & trap "echo tidy > tidied; exit 1" INT; echo $! > began; wait`}
	done := make(chan error)
	go func() {
		done <- Run(ctx, dir, os.Environ(), in, Block{"d.md", 1, "guest", "true", 1}, io.Discard)
	}()
	var child int
	for child == 0 {
		time.Sleep(time.Millisecond)
		if b, err := os.ReadFile(filepath.Join(dir, "began")); err == nil {
			child, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(dir, "tidied")); err != nil {
		t.Error(err)
	}
	for syscall.Kill(child, 0) == nil { // dying takes a moment; living takes go test's time
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child)); err == nil && strings.Contains(string(b), ") Z ") {
			break // nobody may have reaped it
		}
		time.Sleep(time.Millisecond)
	}
}
