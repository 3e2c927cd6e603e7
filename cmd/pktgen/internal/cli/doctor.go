package cli

import (
	"context"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"bare.wire/clock"
	"bare.wire/cmd/pktgen/internal/doctor"
	"bare.wire/device"
)

func (a *app) doctorCommand() *cobra.Command {
	var output, root string
	cmd := &cobra.Command{
		Use:   "doctor [DEVICE...]",
		Short: "Say what stands in the way of a run, and how to remove it",
		Long: `Look at the machine, and at the devices that a run would use, and say what stands in the way, each with the
command that removes it. Nothing is changed, and no privilege is needed. It takes a fifth of a second, in which it
measures how well this machine keeps to a schedule.

Exit codes: 0 nothing is missing that the named devices need, 2 wrong usage, 3 something is.`,
		Example: `  pktgen doctor
  pktgen doctor 0000:03:00.0
  pktgen doctor -o json sim:`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.doctor(cmd.Context(), output, root, args)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&root, "root", "", "look at the sys, proc, dev and run below this directory")
	_ = cmd.Flags().MarkHidden("root") // the flag exists, so this cannot fail
	return cmd
}

func (a *app) doctor(ctx context.Context, output, root string, uris []string) error {
	if err := checkOutput(output); err != nil {
		return err
	}
	r, err := doctor.Examine(ctx, doctor.Config{
		Host: a.machine(root), Clock: clock.Real(), URIs: uris, Arch: runtime.GOARCH, Root: os.Geteuid() == 0, Software: a.tried,
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		return &exitError{Environment, err}
	}
	write := r.WriteText
	if output == "json" {
		write = r.WriteJSON
	}
	return a.verdictOf(r.OK, write)
}

// tried opens a device and closes it.
func (a *app) tried(ctx context.Context, uri string) error {
	set, err := a.open(ctx, device.Options{}, uri)
	if err != nil {
		return err
	}
	return set.Close()
}

// verdictOf prints a report, and ends with Environment when something is missing: the report has said what.
func (a *app) verdictOf(ok bool, write func(io.Writer) error) error {
	if err := write(a.out); err != nil {
		return &exitError{Device, err}
	}
	if !ok {
		return &exitError{code: Environment}
	}
	return nil
}
