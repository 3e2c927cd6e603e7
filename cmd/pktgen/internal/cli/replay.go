package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bare.wire/cmd/pktgen/internal/engine"
	"bare.wire/cmd/pktgen/internal/replay"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/device"
)

// replayFlags are the flags of replay as they were written.
type replayFlags struct {
	timing, rate, loop, maxGap string
	burst                      int
	interval, drain            string
	output, outFile            string
	maxLoss, pcapTx, pcapRx    string
	set                        *pflag.FlagSet
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay [flags] FILE [TX [RX]]",
		Short: "Send the packets of a capture file and count what comes back",
		Long: `Send the packets of a pcap or pcapng file (gzip or not) through TX and receive them through RX. One device
is both; none is sim:, two software cards in this process. What was captured is what is sent; what cannot
be sent is counted by reason, and all counts add up to the file.

Packet i of pass k is sent at start + k*period + t(i) - t(0), where the period is the time from the first
packet to the last and one mean gap more. Stamps that run backwards are sent at once.

Exit codes: 0 fine, 1 a limit was broken (--max-loss), 2 wrong usage or no such capture, 3 the machine does
not allow it, 4 a device or the file failed on the way, 5 frames were sent too late, 130 interrupted.

Devices:
  ` + strings.Join(device.Schemes(), "\n  "),
		Example: `  pktgen replay trace.pcap                      as it was captured, between two software cards
  pktgen replay --timing x10 trace.pcapng.gz    ten times as fast
  pktgen replay -r 50% --loop 100 trace.pcap    at an even rate, a hundred times
  pktgen replay --pcap-rx out.pcap trace.pcap 'sim:?clock=virtual'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("no capture file; write pktgen replay FILE")
			case len(args) > 3:
				return usage("%d devices: %s; give FILE, TX and, if it is another, RX", len(args)-1, strings.Join(args[1:], " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.set = cmd.Flags()
			return a.replay(cmd.Context(), f, args[0], args[1:])
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.timing, "timing", "original", "when to send: original, or at another speed, as in x2 or x0.5")
	fs.StringVarP(&f.rate, "rate", "r", "", "send at this rate instead: 10kpps, 1Gbps (L1: wire bits), 1GbpsL2, 37.5% of the link, max")
	fs.StringVar(&f.loop, "loop", "1", "how many times to send the file; 0: until interrupted")
	fs.StringVar(&f.maxGap, "max-gap", "0", "shorten every longer silence in the file to this; 0: keep them")
	fs.IntVarP(&f.burst, "burst", "b", 32, "most frames sent with one doorbell")
	fs.StringVarP(&f.interval, "interval", "i", "1s", "time between status lines; 0: none")
	fs.StringVarP(&f.output, "output", "o", "text", "text, json or ndjson")
	fs.StringVar(&f.outFile, "out", "", "also write the result as JSON to this file")
	fs.StringVar(&f.maxLoss, "max-loss", "", "fail when more is missing: frames, as in 0, or a share, as in 0.1%")
	fs.StringVar(&f.pcapTx, "pcap-tx", "", "write what was sent to a pcap file")
	fs.StringVar(&f.pcapRx, "pcap-rx", "", "write what was received to a pcap file")
	fs.StringVar(&f.drain, "drain", engine.DefaultDrain.String(), "how long to wait for late frames at the end")
	return cmd
}

// config reads the flags. Every error is a usage error.
func (f replayFlags) config() (c replay.Config, loops uint64, err error) {
	if c.Timing, err = replay.ParseTiming(f.timing); err != nil {
		return c, 0, fmt.Errorf("--timing: %w", err)
	}
	if f.rate != "" {
		r, err := units.ParseRate(f.rate)
		switch {
		case err != nil:
			return c, 0, fmt.Errorf("-r: %w", err)
		case f.set.Changed("timing"):
			return c, 0, errors.New("--timing and -r both say when to send; leave out one of them")
		case f.set.Changed("max-gap"):
			return c, 0, errors.New("--max-gap is about the gaps in the file, which -r replaces; leave out one of them")
		}
		c.Timing.Rate = &r
	}
	if loops, err = units.Count(f.loop); err != nil {
		return c, 0, fmt.Errorf("--loop: %w", err)
	}
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{{"-i", f.interval, &c.Interval}, {"--drain", f.drain, &c.Drain}, {"--max-gap", f.maxGap, &c.Timing.MaxGap}} {
		if *d.to, err = units.Duration(d.text); err != nil {
			return c, 0, fmt.Errorf("%s: %w", d.flag, err)
		}
	}
	if c.Interval > 0 && c.Interval < time.Millisecond {
		return c, 0, fmt.Errorf("-i %s: at least 1ms, or 0 for no status lines", f.interval)
	}
	if f.burst < 1 || f.burst > 256 {
		return c, 0, fmt.Errorf("-b %d: give 1 to 256 frames", f.burst)
	}
	c.Burst = f.burst
	if f.maxLoss != "" {
		l, err := units.ParseLimit(f.maxLoss)
		if err != nil {
			return c, 0, fmt.Errorf("--max-loss: %w", err)
		}
		c.MaxLoss = &l
	}
	_, err = report.NewReplaySink(f.output, io.Discard)
	return c, loops, err
}

// replay is the command.
func (a *app) replay(ctx context.Context, f replayFlags, name string, uris []string) error {
	c, loops, err := f.config()
	if err != nil {
		return &exitError{Usage, err}
	}
	log, err := a.logger()
	if err != nil {
		return err
	}
	if err := f.outputs().distinct(name); err != nil {
		return &exitError{Usage, err}
	}
	// A pipe that nobody writes to makes this wait.
	if err := await(ctx, func() (err error) { c.File, err = replay.Open(name, loops); return err }); err != nil {
		return &exitError{fileCode(err), err}
	}
	defer c.File.Close()
	if len(uris) == 0 {
		uris = []string{"sim:"}
	}
	set, err := a.open(ctx, device.Options{Logger: log}, uris...)
	if err != nil {
		return &exitError{openCode(err), err}
	}
	if c.Sink, err = report.NewReplaySink(f.output, a.out); err != nil {
		return &exitError{Usage, errors.Join(err, set.Close())}
	}
	result, err := f.onDevices(ctx, c, set)
	if closing := set.Close(); closing != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", engine.ErrDevice, closing))
	}
	return replayVerdict(result, err)
}

// fileCode tells a file that the machine does not let us read from one that is not what replay wants.
func fileCode(err error) Code {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != syscall.ENOENT && errno != syscall.EISDIR && errno != syscall.ENOTDIR {
		return Environment
	}
	return Usage
}

// onDevices replays on open devices, with the files that were asked for.
func (f replayFlags) onDevices(ctx context.Context, c replay.Config, set *device.Set) (result *report.Replay, err error) {
	if len(set.Ports) > 2 {
		return nil, &exitError{Usage, fmt.Errorf("%s are %d ports; give TX and, if it is another, RX", strings.Join(set.URIs, " "), len(set.Ports))}
	}
	port := func(i int) engine.Port { return engine.Port{Port: set.Ports[i], URI: name(set, i)} }
	c.Tx, c.Rx = port(0), port(len(set.Ports)-1)
	c.Clock, c.Space, c.About = set.Clock, set.Space, set.About
	c.Host, c.Version = report.ThisHost("/"), version()
	out, err := f.outputs().create()
	if err != nil {
		return nil, err
	}
	c.TxCapture, c.RxCapture = out.captures()
	result, err = replay.Run(ctx, c)
	return result, out.finish(err, result != nil, func(to io.Writer) error { return report.WriteReplayJSON(to, result) })
}

func (f replayFlags) outputs() outputNames {
	return outputNames{tx: f.pcapTx, rx: f.pcapRx, result: f.outFile}
}

// replayVerdict is the exit code of a finished replay.
func replayVerdict(r *report.Replay, err error) error {
	if r == nil {
		return verdict(nil, err)
	}
	return verdict(&report.Run{Complete: r.Complete, Valid: r.Valid, Checks: r.Checks}, err)
}
