// Package cli is pktgen's command line: it reads flags, opens devices, has the engine run, and turns what happened into an
// exit code.
//
// Standard output carries results only; what is wrong goes to standard error in one line that says what was meant or what to
// do. No command needs a terminal, and none writes colour or moves a cursor.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bare.wire/cmd/internal/cli"
	"bare.wire/device"
	"bare.wire/pci"
)

// Code is how pktgen ends.
type Code int

// Exit codes.
const (
	OK          Code = 0   // finished, valid, all checks passed
	CheckFailed Code = 1   // a limit that was set was broken
	Usage       Code = 2   // the command line makes no sense
	Environment Code = 3   // permission, memory, a device in use: the machine does not allow it
	Device      Code = 4   // a device, its link or a capture file failed while running
	Invalid     Code = 5   // the generator could not keep to what was asked: the figures mean nothing
	Interrupted Code = 130 // interrupted before the end; a partial result was printed
)

// exitError is an error that knows its code. An empty text prints nothing: the result has said it all.
type exitError struct {
	code Code
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{Usage, fmt.Errorf(format, args...)}
}

// app is what the commands share.
type app struct {
	out, log io.Writer
	// open is device.OpenSet, or a test's.
	open func(ctx context.Context, opt device.Options, uris ...string) (*device.Set, error)
	// host is the machine that devices and doctor look at; nil: the one that --root names.
	host *pci.Host
	// logFormat, verbose and quiet decide what standard error carries.
	logFormat      string
	verbose, quiet bool
}

// Main runs pktgen with the arguments of the process and returns its exit code. SIGINT and SIGTERM end a run early with a
// partial result; a second one ends the process.
func Main(args []string, out, log io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return int((&app{out: out, log: log, open: device.OpenSet}).main(ctx, args))
}

func (a *app) main(ctx context.Context, args []string) Code {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return OK
	}
	var exit *exitError
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		exit = &exitError{Interrupted, errors.New("interrupted before it had begun")}
	} else if !errors.As(err, &exit) {
		exit = &exitError{Usage, err} // what cobra itself finds is always the command line
		if !strings.Contains(err.Error(), "Did you mean") {
			exit.err = fmt.Errorf("%w; see %s --help", err, below(root, args))
		}
	}
	if text := exit.Error(); text != "" {
		fmt.Fprintf(a.log, "pktgen: %s\n", text)
	}
	return exit.code
}

// below is the command that the line got to before it made no sense: "pktgen devices" of "pktgen devices bnd".
func below(root *cobra.Command, args []string) string {
	if cmd, _, err := root.Find(args); err == nil {
		return cmd.CommandPath()
	}
	return root.CommandPath()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pktgen",
		Short: "Send frames, count what comes back, and say how far the figures can be trusted",
		Long: `pktgen sends frames through a network card on an exact schedule, receives what comes back, and accounts
for every frame: lost, reordered, duplicated, late. Without a device it uses two software cards in its
own process, so it runs anywhere, without root.`,
		SilenceErrors: true, SilenceUsage: true,
		SuggestionsMinimumDistance: 2,
		Version:                    version(),
	}
	root.SetOut(a.out)
	root.SetErr(a.log)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().StringVar(&a.logFormat, "log-format", "text", "form of the log on standard error: text or json")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log more")
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "log errors only")
	root.AddCommand(a.runCommand(), a.replayCommand(), a.devicesCommand(), a.doctorCommand(), a.versionCommand())
	return root
}

// logger writes to standard error.
func (a *app) logger() (*slog.Logger, error) {
	level := slog.LevelWarn
	switch {
	case a.verbose && a.quiet:
		return nil, usage("--verbose and --quiet contradict each other; give one of them")
	case a.verbose:
		level = slog.LevelDebug
	case a.quiet:
		level = slog.LevelError
	}
	opt := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(a.log, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.log, opt)), nil
	}
	return nil, usage("log format %q: unknown; write text or json", a.logFormat)
}

// print writes to standard output.
func (a *app) print(format string, args ...any) error {
	if _, err := fmt.Fprintf(a.out, format, args...); err != nil {
		return &exitError{Device, err}
	}
	return nil
}

// flagError adds to an unknown flag the one that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	return &exitError{Usage, cli.FlagError(cmd, err, "")}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.print("pktgen %s\n", version())
		},
	}
}

// version says which pktgen this is, as far as the build knows.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text, revision, dirty := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if text == "" || text == "(devel)" {
		text = "devel"
	}
	if revision != "" && !strings.Contains(text, revision) {
		text += " " + revision + dirty
	}
	return text + " " + info.GoVersion
}
