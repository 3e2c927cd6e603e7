// Package testpmd drives DPDK's testpmd through its prompt, as a person would: a command goes in, what is printed until the
// next prompt is the answer. The answers' figures are read by the functions of parse.go.
//
// testpmd prints through stdio and prompts past it, so behind a pipe its answers come late and out of order. It is therefore
// given a terminal, where each line is written when it is complete.
//
// Commands and formats: DPDK's "Testpmd Application User Guide", release 22.11.
package testpmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

// Prompt is what testpmd writes when it waits for a command.
const Prompt = "testpmd> "

// tailBytes is how much of the output an error shows.
const tailBytes = 4096

// Session is a running testpmd. Its methods may be called by one goroutine at a time.
type Session struct {
	cmd  *exec.Cmd
	term *os.File

	mu   sync.Mutex
	out  strings.Builder
	more chan struct{} // closed, and replaced, at each piece of output
	gone bool          // no more output comes

	exited chan struct{}
	exit   error
}

// Start starts the command on a terminal of its own and waits for the first prompt. The program is killed when ctx ends
// before that, or when it does not come to a prompt; a started Session lives until Close.
func Start(ctx context.Context, cmd *exec.Cmd) (*Session, error) {
	term, line, err := openTerminal()
	if err != nil {
		return nil, fmt.Errorf("testpmd: a terminal: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, line
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("testpmd: %w", err), term.Close(), line.Close())
	}
	_ = line.Close()
	s := &Session{cmd: cmd, term: term, more: make(chan struct{}), exited: make(chan struct{})}
	go s.read()
	go func() {
		s.exit = cmd.Wait()
		close(s.exited)
	}()
	if _, err := s.Wait(ctx, 0, Prompt, func(text string) int {
		if prompt.MatchString(events.ReplaceAllString(text, "")) {
			return 0
		}
		return -1
	}); err != nil {
		s.kill()
		return nil, fmt.Errorf("testpmd does not come to its prompt: %w", err)
	}
	return s, nil
}

// read collects the output until the terminal's other end is closed.
func (s *Session) read() {
	var c cleaner
	buf := make([]byte, 64<<10)
	for {
		n, err := s.term.Read(buf)
		s.mu.Lock()
		s.out.WriteString(c.clean(string(buf[:n])))
		close(s.more)
		s.more = make(chan struct{})
		s.gone = err != nil // EIO when the last holder of the other end is gone
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// controls are the terminal's escape sequences, with which the line editor echoes what is typed; begun is one that the output
// ends in.
var (
	controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")
	begun    = regexp.MustCompile("\x1b(\\[[0-9;?]*)?$")
	marks    = strings.NewReplacer("\r", "", "\a", "", "\b", "")
)

// cleaner takes escape sequences and carriage returns out of output that comes in pieces.
type cleaner struct{ rest string }

func (c *cleaner) clean(piece string) string {
	piece = c.rest + piece
	c.rest = begun.FindString(piece)
	return marks.Replace(controls.ReplaceAllString(piece[:len(piece)-len(c.rest)], ""))
}

// Mark is the present end of the output, for Since and Until.
func (s *Session) Mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Len()
}

// Since is the output from a mark on.
func (s *Session) Since(mark int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()[mark:]
}

// Until waits until the output from a mark on matches, and returns it up to the end of the match.
func (s *Session) Until(ctx context.Context, mark int, re *regexp.Regexp) (string, error) {
	return s.Wait(ctx, mark, re.String(), func(text string) int {
		if at := re.FindStringIndex(text); at != nil {
			return at[1]
		}
		return -1
	})
}

// Wait waits until end finds, in the output from a mark on, where what is waited for ends; until then end returns -1. It returns
// the output up to there. The word what names it in errors.
func (s *Session) Wait(ctx context.Context, mark int, what string, end func(text string) int) (string, error) {
	for {
		s.mu.Lock()
		text, more, gone := s.out.String()[mark:], s.more, s.gone
		s.mu.Unlock()
		if n := end(text); n >= 0 {
			return text[:n], nil
		}
		if gone {
			select {
			case <-s.exited:
			case <-ctx.Done():
				return text, fmt.Errorf("testpmd closed its terminal before it wrote %q, and did not end: %w; it wrote:\n%s", what, ctx.Err(), tail(text))
			}
			return text, fmt.Errorf("testpmd ended (%s) before it wrote %q; it wrote:\n%s", s.status(), what, tail(text))
		}
		select {
		case <-more:
		case <-ctx.Done():
			return text, fmt.Errorf("testpmd did not write %q: %w; it wrote:\n%s", what, ctx.Err(), tail(text))
		}
	}
}

// Refused is an answer by which testpmd says that it did not do what it was asked.
type Refused struct{ Command, Answer string }

func (e *Refused) Error() string {
	return fmt.Sprintf("testpmd refuses %q: %s", e.Command, strings.TrimSpace(tail(e.Answer)))
}

// events are lines that testpmd prints whenever it likes, with an empty line before. It prompts letter by letter, so that both may be
// in the middle of a prompt.
var (
	events   = regexp.MustCompile(`Port [0-9]+: [a-z ]+ event\n`)
	prompt   = regexp.MustCompile(strings.Join(strings.Split(Prompt, ""), `\n?`))
	prompted = regexp.MustCompile(`\n` + prompt.String())
)

// refusals are the words in which testpmd refuses; it has no common form for it.
var refusals = regexp.MustCompile(`(?m)^(Command not found|Bad arguments|Ambiguous command|Invalid .*|Please stop .*|.*[Ff]ail(ed)? to .*|.*not supported.*|.* error: \(.*)$`)

// Do gives a command and returns what was printed up to the next prompt. Packets that a forwarding engine prints meanwhile
// are in it, too. The error is a *Refused when the answer is a refusal; the answer is returned all the same.
func (s *Session) Do(ctx context.Context, command string) (string, error) {
	mark := s.Mark()
	if _, err := s.term.WriteString(command + "\n"); err != nil {
		return "", fmt.Errorf("testpmd %q: %w", command, err)
	}
	// The echo of the command and its line end come first, then the answer, then the prompt.
	var answer string
	text, err := s.Wait(ctx, mark, Prompt, func(text string) int {
		text = events.ReplaceAllString(text, "")
		at := prompted.FindStringIndex(text)
		if at == nil {
			return -1
		}
		answer = text[:at[0]+1]
		return 0
	})
	if err != nil {
		return text, fmt.Errorf("%q: %w", command, err)
	}
	if _, after, ok := strings.Cut(answer, "\n"); ok {
		answer = after
	}
	if refusals.MatchString(answer) {
		return answer, &Refused{Command: command, Answer: answer}
	}
	return answer, nil
}

// Close asks testpmd to quit and waits for its end; it is killed when ctx ends first. It is an error when testpmd did not
// end well.
func (s *Session) Close(ctx context.Context) error {
	_, err := s.term.WriteString("quit\n")
	if err == nil {
		select {
		case <-s.exited:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		s.kill()
		return fmt.Errorf("testpmd does not quit: %w; it wrote:\n%s", err, tail(s.Since(0)))
	}
	_ = s.term.Close()
	if s.exit != nil {
		return fmt.Errorf("testpmd: %w; it wrote:\n%s", s.exit, tail(s.Since(0)))
	}
	return nil
}

func (s *Session) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
	_ = s.term.Close()
}

func (s *Session) status() string {
	if s.exit != nil {
		return s.exit.Error()
	}
	return "exit status 0"
}

func tail(s string) string {
	if len(s) > tailBytes {
		return "…" + s[len(s)-tailBytes:]
	}
	return s
}
