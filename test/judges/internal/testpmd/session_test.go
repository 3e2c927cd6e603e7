package testpmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// asTestpmd, when set, makes this test binary stand in for testpmd.
const asTestpmd = "BAREWIRE_AS_TESTPMD"

func TestMain(m *testing.M) {
	if how := os.Getenv(asTestpmd); how != "" {
		standIn(how)
		return
	}
	os.Exit(m.Run())
}

// standIn prompts, echoes and answers as testpmd's command line does.
func standIn(how string) {
	fmt.Print("EAL: Detected CPU lcores: 2\r\n")
	if how == "fails" {
		fmt.Print("EAL: Error - exiting with code: 1\r\n")
		os.Exit(1)
	}
	first := Prompt
	if how == "link comes up" {
		first = Prompt[:4] + "\r\nPort 0: link state change event\r\n" + Prompt[4:]
	}
	fmt.Print(first)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Print(Prompt) {
		fmt.Print(in.Text(), "\x1b[", "0K\r\n") // in two pieces, as a terminal may hand them on
		switch in.Text() {
		case "quit":
			fmt.Print("Bye...\r\n")
			if how == "quits badly" {
				os.Exit(3)
			}
			return
		case "die":
			os.Exit(2)
		case "retire":
			for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
				_ = f.Close()
			}
			sleep()
		case "hang":
			sleep()
		case "packets":
			fmt.Print(Prompt, "port 0/queue 0: received 1 packets\r\n")
		case "speak":
			fmt.Print("one\r\ntwo\r\n")
		case "event":
			fmt.Print("one\r\n", Prompt[:1], "\r\n", Prompt[1:2], "Port 0: link state change event\r\n", Prompt[2:])
		case "nothing":
		default:
			fmt.Print("Command not found\r\n")
		}
	}
}

func start(t *testing.T, how string) (*Session, error) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), asTestpmd+"="+how)
	return Start(t.Context(), cmd)
}

func TestCommandsAreAnswered(t *testing.T) {
	s, err := start(t, "well")
	require.NoError(t, err)
	for command, answer := range map[string]string{"speak": "one\ntwo\n", "event": "one\n", "nothing": ""} {
		got, err := s.Do(t.Context(), command)
		require.NoError(t, err)
		assert.Equal(t, answer, got)
	}
	got, err := s.Do(t.Context(), "bogus")
	var refused *Refused
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "bogus", refused.Command)
	assert.Equal(t, "Command not found\n", got)

	mark := s.Mark()
	_, err = s.Do(t.Context(), "packets")
	require.NoError(t, err)
	got, err = s.Until(t.Context(), mark, regexp.MustCompile(`received 1 packets\n`))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(got, "received 1 packets\n"))
	require.NoError(t, s.Close(t.Context()))
}

func TestAnEventMayBeInTheFirstPrompt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), asTestpmd+"=link comes up")
	s, err := Start(ctx, cmd)
	require.NoError(t, err)
	got, err := s.Do(ctx, "speak")
	require.NoError(t, err)
	assert.Equal(t, "one\ntwo\n", got)
	require.NoError(t, s.Close(ctx))
}

func TestAProgramThatEndsIsAnErrorWithItsLastWords(t *testing.T) {
	_, err := start(t, "fails")
	require.ErrorContains(t, err, "exit status 1")
	assert.ErrorContains(t, err, "EAL: Error - exiting with code: 1")

	s, err := start(t, "well")
	require.NoError(t, err)
	_, err = s.Do(t.Context(), "die")
	assert.ErrorContains(t, err, "exit status 2")

	s, err = start(t, "quits badly")
	require.NoError(t, err)
	assert.ErrorContains(t, s.Close(t.Context()), "exit status 3")
}

func TestAProgramThatHangsIsKilled(t *testing.T) {
	s, err := start(t, "well")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Do(ctx, "hang")
	require.ErrorIs(t, err, context.Canceled)
	err = s.Close(ctx)
	require.ErrorIs(t, err, context.Canceled)
	var exit *exec.ExitError
	assert.True(t, errors.As(s.exit, &exit) && !exit.Exited(), "the program was not killed: %v", s.exit)
}

func TestAProgramThatClosesItsTerminalIsNotWaitedForForever(t *testing.T) {
	s, err := start(t, "well")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = s.Do(ctx, "retire")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "closed its terminal")
	require.Error(t, s.Close(ctx))
}

// sleep is a program that does nothing any more. In a select without cases Go's runtime may find that nobody can ever wake it, and
// end it.
func sleep() {
	for {
		_, _ = unix.Ppoll(nil, nil, nil)
	}
}
