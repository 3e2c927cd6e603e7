// Package docsh finds the shell blocks of Markdown files and runs them, so that what the documentation tells a reader to type
// is what was tried.
//
// A shell block is fenced as one of
//
//	```sh ci         runs anywhere, and is run by CI as it is written
//	```sh guest      runs in a virtual machine with two software cards; CI does that, too
//	```sh hardware   needs a real card; nobody here runs it
//
// `sh ci realtime` is `sh ci` for a block that keeps time with the machine's clock, and that a machine which stands still for
// a moment makes fail: it gets five tries. Any other fence that names a shell is an error: a reader could not know whether the
// block works.
package docsh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Block is one fenced shell block.
type Block struct {
	File string
	Line int    // of the first line of the script, from 1
	Kind string // "ci", "guest" or "hardware"
	Text string
	// Tries is how often the block may be run until it succeeds.
	Tries int
}

// realtimeTries is Tries of a block that keeps real time.
const realtimeTries = 5

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

var kinds = map[string]bool{"ci": true, "guest": true, "hardware": true}

// shells are the words that make a fence a shell's.
var shells = map[string]bool{"sh": true, "bash": true, "shell": true, "console": true, "shell-session": true, "zsh": true, "shellsession": true}

// Find returns the shell blocks of a Markdown file, in order. The error names every fence that is wrong.
func Find(file string, r io.Reader) ([]Block, error) {
	var blocks []Block
	var wrong []error
	var in *fence
	var text strings.Builder
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	n := 0
	for sc.Scan() {
		n++
		line := sc.Text()
		if in == nil {
			if in = openFence(line); in != nil {
				in.line = n
				if err := in.check(); err != nil {
					wrong = append(wrong, fmt.Errorf("%s:%d: %w", file, n, err))
				}
				text.Reset()
			}
			continue
		}
		if !in.closedBy(line) {
			text.WriteString(unindent(line, in.indent) + "\n")
			continue
		}
		if in.kind != "" {
			blocks = append(blocks, Block{file, in.line + 1, in.kind, text.String(), in.tries})
		}
		in = nil
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if in != nil {
		wrong = append(wrong, fmt.Errorf("%s:%d: this fence is never closed", file, in.line))
	}
	return blocks, errors.Join(wrong...)
}

// fence is an open code fence.
type fence struct {
	mark   byte // '`' or '~'
	length int
	indent int
	info   []string
	kind   string // when it is a shell block
	tries  int
	line   int
}

// openFence returns the fence that a line opens, or nil.
func openFence(line string) *fence {
	body := strings.TrimLeft(line, " ")
	for _, m := range []byte{'`', '~'} {
		l := len(body) - len(strings.TrimLeft(body, string(m)))
		if l < 3 || m == '`' && strings.Contains(body[l:], "`") {
			continue
		}
		return &fence{mark: m, length: l, indent: len(line) - len(body), info: strings.Fields(body[l:])}
	}
	return nil
}

func (f *fence) closedBy(line string) bool {
	body := strings.TrimSpace(line)
	return len(body) >= f.length && strings.Trim(body, string(f.mark)) == ""
}

// check sets the kind of a shell's fence, and says what is wrong with it.
func (f *fence) check() error {
	if len(f.info) == 0 || !shells[strings.ToLower(f.info[0])] {
		return nil
	}
	f.tries = 1
	if len(f.info) == 3 && f.info[1] == "ci" && f.info[2] == "realtime" {
		f.tries, f.info = realtimeTries, f.info[:2]
	}
	if f.info[0] != "sh" || len(f.info) != 2 || !kinds[f.info[1]] {
		return fmt.Errorf("a shell block fenced %q: write `sh ci`, `sh ci realtime`, `sh guest` or `sh hardware`", strings.Join(f.info, " "))
	}
	f.kind = f.info[1]
	return nil
}

// unindent takes at most n spaces off the front of a line.
func unindent(line string, n int) string {
	for n > 0 && strings.HasPrefix(line, " ") {
		line = line[1:]
		n--
	}
	return line
}

// tidyTime is how long what runs a block elsewhere has to clear away what it has made.
const tidyTime = 15 * time.Second

// Run runs a block with bash in a directory and writes what it prints to out. A command that fails ends the block. bash is told
// the document's name and line, so that its messages, and the error, name the line of the document. The words of in are put before
// the command: a program that runs it elsewhere, such as a virtual machine.
func Run(ctx context.Context, dir string, env, in []string, b Block, out io.Writer) error {
	// The empty lines in front make bash count lines as the document does.
	const trap = `trap 's=$?; echo "$0:$LINENO: exit status $s: $BASH_COMMAND" >&2' ERR; `
	script := trap + strings.Repeat("\n", b.Line-1) + b.Text
	words := append(slices.Clone(in), "bash", "-Eeuo", "pipefail", "-c", script, b.File)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = out, out
	// A process group of its own, so that the end of the time ends everything that the block started. What runs blocks elsewhere
	// may have a virtual machine to end, and is stopped as Ctrl-C would.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	first := syscall.SIGKILL
	if len(in) > 0 {
		first = syscall.SIGINT
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, first) }
	cmd.WaitDelay = tidyTime
	err := cmd.Run()
	if cmd.Process != nil && ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be nobody left
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: not finished in time: %w", b, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	return nil
}
