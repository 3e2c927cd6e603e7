// Package cli is nicsim's command line: it reads flags, puts cards, wires and a virtual machine together, and hands the
// machine's exit status on.
//
// Standard input and output belong to the virtual machine; whatever nicsim says goes to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bare.wire/cmd/internal/cli"
	"bare.wire/sim/qemu"
)

// Code is how nicsim ends when it is not the virtual machine that says.
type Code int

// Exit codes. They may also be QEMU's: what nicsim prints tells them apart.
const (
	OK          Code = 0
	Misused     Code = 1 // --strict, and the driver did what it must not
	Usage       Code = 2 // the command line makes no sense
	Environment Code = 3 // no QEMU, no permission, a file that cannot be written
	Failed      Code = 4 // it broke down while running
)

// exitError is an error that knows its code.
type exitError struct {
	code Code
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &exitError{Usage, fmt.Errorf(format, args...)} }

func environment(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{Environment, err}
}

// besides adds to err, which may be nil, what went wrong while everything was given back.
func besides(err, more error) error {
	if more == nil {
		return err
	}
	code := Failed
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		code = exit.code
	}
	return &exitError{code, errors.Join(err, more)}
}

// app is what the commands share.
type app struct {
	in       io.Reader
	out, log io.Writer
	status   int // of the virtual machine
}

// Main runs nicsim with the arguments of the process and returns its exit code. SIGINT and SIGTERM end the virtual machine
// in order.
func Main(args []string, in io.Reader, out, log io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return (&app{in: in, out: out, log: log}).main(ctx, args)
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return a.status
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
	case errors.Is(err, qemu.ErrCommand):
		exit = &exitError{Usage, err}
	default:
		exit = &exitError{Usage, err} // what cobra itself finds is always the command line
		if !strings.Contains(err.Error(), "Did you mean") {
			exit.err = fmt.Errorf("%w; see nicsim --help", err)
		}
	}
	fmt.Fprintf(a.log, "nicsim: %s\n", exit.Error())
	return int(exit.code)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "nicsim",
		Short: "Software network cards for others",
		Long: `nicsim offers software network cards to programs that expect real ones: an Intel 82599 as a PCI device of a
virtual machine, driven by whatever driver runs in there, or a virtio-net device on a vhost-user socket.`,
		SilenceErrors: true, SilenceUsage: true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetOut(a.out)
	root.SetErr(a.log)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(a.qemuCommand(), a.vhostCommand())
	return root
}

// logger writes to file, or to standard error where that is "". What it returns is to be closed.
func (a *app) logger(file string, verbose bool) (*slog.Logger, io.Closer, error) {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	to, closer := a.log, io.Closer(io.NopCloser(nil))
	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return nil, nil, environment(fmt.Errorf("log: %w", err))
		}
		to, closer = f, f
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level})), closer, nil
}

// flagError adds to an unknown flag the one that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	hint := ""
	if cmd.Name() == "qemu" {
		hint = "QEMU's own arguments go behind --"
	}
	return &exitError{Usage, cli.FlagError(cmd, err, hint)}
}
