package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bare.wire/cmd/pktgen/internal/engine"
	"bare.wire/cmd/pktgen/internal/frame"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/device"
	"bare.wire/nic"
)

// runFlags are the flags of run as they were written.
type runFlags struct {
	rate, time, count, size string
	burst                   int
	proto, src, dst         string
	sport, dport            string
	srcMAC, dstMAC          string
	flows                   string
	vlans                   []string
	latency, interval       string
	output, outFile         string
	dryRun                  string
	seed                    uint64
	maxLoss, pcapTx, pcapRx string
	drain, stall            string
	set                     *pflag.FlagSet
}

// dryRunText is the value of --dry-run without a file.
const dryRunText = "-"

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] [TX [RX]]",
		Short: "Send frames and account for what comes back",
		Long: `Send frames through TX and receive them through RX. One device is both; none is sim:, two software cards
in this process. Sizes are in bytes with FCS; a bare "bps" counts wire bits (L1).

Exit codes: 0 fine, 1 a limit was broken (--max-loss), 2 wrong usage, 3 the machine does not allow it,
4 a device failed, 5 the rate was not kept (the figures mean nothing), 130 interrupted.

Devices:
  ` + strings.Join(device.Schemes(), "\n  "),
		Example: `  pktgen run                            10 s at 10 kpps between two software cards
  pktgen run -r 1Mpps -t 3s -s 512
  pktgen run -r 50% -n 1e6 -o json 'sim:?delay=5us&loss=1e-4&clock=virtual'
  pktgen run -r 1Mpps --max-loss 0      exit code 1 if anything is lost
  pktgen run --dry-run=frames.pcap      write what would be sent`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.set = cmd.Flags()
			return a.run(cmd.Context(), f, args)
		},
	}
	f.define(cmd.Flags())
	return cmd
}

func (f *runFlags) define(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVarP(&f.rate, "rate", "r", "10kpps", "10kpps, 1Mpps, 1Gbps (L1: wire bits), 1GbpsL2 (frame with FCS), 37.5% of the link, max")
	fs.StringVarP(&f.time, "time", "t", "10s", "how long to send; 0: until interrupted. With -n alone there is no limit of time")
	fs.StringVarP(&f.count, "count", "n", "0", "how many frames to send, as in 1e6 or 10M; 0: no limit")
	fs.StringVarP(&f.size, "size", "s", "64", "frame size, bytes with FCS")
	fs.IntVarP(&f.burst, "burst", "b", 32, "most frames sent with one doorbell")
	fs.StringVarP(&f.proto, "proto", "p", "udp", "udp, tcp (SYN), icmp (echo), arp (request)")
	fs.StringVar(&f.src, "src", "198.18.0.1", "source address, IPv4 or IPv6")
	fs.StringVar(&f.dst, "dst", "198.19.0.1", "destination address")
	fs.StringVar(&f.sport, "sport", "1024", "source port")
	fs.StringVar(&f.dport, "dport", "9", "destination port")
	fs.StringVar(&f.srcMAC, "src-mac", "", "source MAC address (default that of TX)")
	fs.StringVar(&f.dstMAC, "dst-mac", "", "destination MAC address (default that of RX)")
	fs.StringVar(&f.flows, "flows", "1", "how many flows: source ports, then source addresses, are varied")
	fs.StringArrayVar(&f.vlans, "vlan", nil, "VLAN tag, id or id:priority; twice is QinQ, the outer one first")
	fs.StringVar(&f.latency, "latency", "all", "all: measure every frame; off")
	fs.StringVarP(&f.interval, "interval", "i", "1s", "time between status lines; 0: none")
	fs.StringVarP(&f.output, "output", "o", "text", "text, json or ndjson")
	fs.StringVar(&f.outFile, "out", "", "also write the result as JSON to this file")
	fs.StringVar(&f.dryRun, "dry-run", "", "touch no device: print frames and schedule, or write them to a pcap `FILE`")
	fs.Lookup("dry-run").NoOptDefVal = dryRunText
	fs.Uint64Var(&f.seed, "seed", 0, "makes a run another run, and marks its frames (default random)")
	fs.StringVar(&f.maxLoss, "max-loss", "", "fail when more is lost: frames, as in 0, or a share, as in 0.1%")
	fs.StringVar(&f.pcapTx, "pcap-tx", "", "write what was sent to a pcap file")
	fs.StringVar(&f.pcapRx, "pcap-rx", "", "write what was received to a pcap file")
	fs.StringVar(&f.drain, "drain", engine.DefaultDrain.String(), "how long to wait for late frames at the end")
	fs.StringVar(&f.stall, "stall", "0", "stand still for that long in the middle, to see what a run is like whose host did")
	_ = fs.MarkHidden("stall") // the flag exists, so this cannot fail
}

// plan is a run as the flags describe it, before a device is open.
type plan struct {
	cfg     engine.Config
	uris    []string
	dryRun  string
	outputs outputNames
}

// plan reads the flags. Every error is a usage error.
func (f runFlags) plan(args []string) (*plan, error) {
	if len(args) > 2 {
		return nil, usage("%d devices: %s; give TX and, if it is another, RX", len(args), strings.Join(args, " "))
	}
	if len(args) == 0 {
		args = []string{"sim:"}
	}
	p := &plan{uris: args, dryRun: f.dryRun, outputs: outputNames{tx: f.pcapTx, rx: f.pcapRx, result: f.outFile}}
	for _, step := range []func(*plan) error{f.amounts, f.look, f.rest, f.contradictions, f.files} {
		if err := step(p); err != nil {
			return nil, &exitError{Usage, err}
		}
	}
	return p, nil
}

// amounts are rate, time and numbers.
func (f runFlags) amounts(p *plan) (err error) {
	c := &p.cfg
	if c.Rate, err = units.ParseRate(f.rate); err != nil {
		return fmt.Errorf("-r: %w", err)
	}
	if c.Count, err = units.Count(f.count); err != nil {
		return fmt.Errorf("-n: %w", err)
	}
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{{"-t", f.time, &c.Duration}, {"-i", f.interval, &c.Interval}, {"--drain", f.drain, &c.Drain}, {"--stall", f.stall, &c.Stall}} {
		if *d.to, err = units.Duration(d.text); err != nil {
			return fmt.Errorf("%s: %w", d.flag, err)
		}
	}
	if c.Interval > 0 && c.Interval < time.Millisecond {
		return fmt.Errorf("-i %s: at least 1ms, or 0 for no status lines", f.interval)
	}
	if f.set.Changed("count") && c.Count > 0 && !f.set.Changed("time") {
		c.Duration = 0
	}
	if f.burst < 1 || f.burst > 256 {
		return fmt.Errorf("-b %d: give 1 to 256 frames", f.burst)
	}
	c.Burst = f.burst
	return nil
}

// look is what the frames look like.
func (f runFlags) look(p *plan) (err error) {
	s := &p.cfg.Frame
	if s.Proto, err = frame.ParseProto(f.proto); err != nil {
		return fmt.Errorf("-p: %w", err)
	}
	if s.Size, err = units.Size(f.size); err != nil {
		return fmt.Errorf("-s: %w", err)
	}
	if s.Src, err = units.IP(f.src); err != nil {
		return fmt.Errorf("--src: %w", err)
	}
	if s.Dst, err = units.IP(f.dst); err != nil {
		return fmt.Errorf("--dst: %w", err)
	}
	if s.SrcPort, err = units.Port(f.sport); err != nil {
		return fmt.Errorf("--sport: %w", err)
	}
	if s.DstPort, err = units.Port(f.dport); err != nil {
		return fmt.Errorf("--dport: %w", err)
	}
	for _, m := range []struct {
		flag, text string
		to         *[6]byte
	}{{"--src-mac", f.srcMAC, &s.SrcMAC}, {"--dst-mac", f.dstMAC, &s.DstMAC}} {
		if m.text == "" {
			continue
		}
		if *m.to, err = units.MAC(m.text); err != nil {
			return fmt.Errorf("%s: %w", m.flag, err)
		}
	}
	for _, text := range f.vlans {
		v, err := units.ParseVLAN(text)
		if err != nil {
			return fmt.Errorf("--vlan: %w", err)
		}
		s.VLANs = append(s.VLANs, v)
	}
	n, err := units.Count(f.flows)
	if err != nil {
		return fmt.Errorf("--flows: %w", err)
	}
	if n > frame.MaxFlows {
		return fmt.Errorf("--flows %s: more than there can be; give 1 to %d", f.flows, frame.MaxFlows)
	}
	s.Flows = int(n)
	_, err = frame.New(*s)
	return err
}

func (f runFlags) rest(p *plan) error {
	switch f.latency {
	case "all":
		p.cfg.Latency = true
	case "off":
	default:
		return fmt.Errorf("--latency %q: unknown; write all (every frame) or off", f.latency)
	}
	if f.maxLoss != "" {
		l, err := units.ParseLimit(f.maxLoss)
		if err != nil {
			return fmt.Errorf("--max-loss: %w", err)
		}
		p.cfg.MaxLoss = &l
	}
	p.cfg.Seed = f.seed
	if !f.set.Changed("seed") {
		p.cfg.Seed = 1 + rand.Uint64N(1<<16-1)
	}
	_, err := report.NewSink(f.output, io.Discard)
	return err
}

// contradictions are flags that cannot both be meant.
func (f runFlags) contradictions(p *plan) error {
	for _, port := range []string{"sport", "dport"} {
		if f.set.Changed(port) && (p.cfg.Frame.Proto == frame.ICMP || p.cfg.Frame.Proto == frame.ARP) {
			return fmt.Errorf("--%s has no meaning with -p %s; leave it out, or send udp or tcp", port, p.cfg.Frame.Proto)
		}
	}
	if f.dryRun == "" {
		return nil
	}
	for _, other := range []string{"pcap-tx", "pcap-rx", "out", "max-loss"} {
		if f.set.Changed(other) {
			return fmt.Errorf("--dry-run sends nothing, so there is nothing for --%s; leave out one of them (--dry-run=FILE writes the frames)", other)
		}
	}
	if f.set.Changed("output") && f.output != "text" {
		return fmt.Errorf("--dry-run prints text only; leave out -o %s", f.output)
	}
	if p.cfg.Rate.NeedsLink() {
		return fmt.Errorf("--dry-run opens no device, so the link's speed is not known; give the rate in pps or bps instead of %s", f.rate)
	}
	return nil
}

// files checks that the files to write are different ones.
func (f runFlags) files(p *plan) error { return p.outputs.distinct("") }

// run is the command.
func (a *app) run(ctx context.Context, f runFlags, args []string) error {
	p, err := f.plan(args)
	if err != nil {
		return err
	}
	if p.dryRun != "" {
		return await(ctx, func() error { return a.dry(p) })
	}
	log, err := a.logger()
	if err != nil {
		return err
	}
	set, err := a.open(ctx, device.Options{Logger: log}, p.uris...)
	if err != nil {
		return &exitError{openCode(err), err}
	}
	if p.cfg.Sink, err = report.NewSink(f.output, a.out); err != nil {
		return &exitError{Usage, errors.Join(err, set.Close())}
	}
	result, err := p.onDevices(ctx, set)
	if closing := set.Close(); closing != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", engine.ErrDevice, closing))
	}
	return verdict(result, err)
}

// openCode tells a wrong name from a machine that does not give what was named.
func openCode(err error) Code {
	var errno syscall.Errno
	var host *device.HostError
	if errors.As(err, &errno) || errors.As(err, &host) {
		return Environment
	}
	return Usage
}

// refused tells a machine that does not give what was asked of it (memory, descriptors, permission) from a device that fails.
func refused(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EPERM, syscall.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// onDevices runs the plan on open devices, with the files it asks for.
func (p *plan) onDevices(ctx context.Context, set *device.Set) (result *report.Run, err error) {
	if len(set.Ports) > 2 {
		return nil, &exitError{Usage, fmt.Errorf("%s are %d ports; give TX and, if it is another, RX", strings.Join(p.uris, " "), len(set.Ports))}
	}
	port := func(i int) engine.Port { return engine.Port{Port: set.Ports[i], URI: name(set, i)} }
	c := &p.cfg
	c.Tx, c.Rx = port(0), port(len(set.Ports)-1)
	c.Clock, c.Space, c.About = set.Clock, set.Space, set.About
	c.Host, c.Version = report.ThisHost("/"), version()
	out, err := p.outputs.create()
	if err != nil {
		return nil, err
	}
	c.TxCapture, c.RxCapture = out.captures()
	result, err = engine.Run(ctx, *c)
	return result, out.finish(err, result != nil, func(to io.Writer) error { return report.WriteJSON(to, result) })
}

// name is the URI of a port without the parameters, which may be long: they are in the arguments.
func name(set *device.Set, i int) string {
	var p nic.Port = set.Ports[i]
	if n := p.Info().Name; n != "" {
		return n
	}
	if i < len(set.URIs) {
		return set.URIs[i]
	}
	return fmt.Sprint("port ", i)
}

// verdict is the exit code of a finished run.
func verdict(r *report.Run, err error) error {
	var exit *exitError
	switch {
	case err == nil && r.Complete && r.Valid && !r.Failed():
		return nil
	case errors.As(err, &exit):
		return err
	case errors.Is(err, engine.ErrConfig):
		return &exitError{Usage, err}
	case err != nil && r == nil && (refused(err) || !errors.Is(err, engine.ErrDevice)):
		return &exitError{Environment, err}
	case err != nil:
		return &exitError{Device, err}
	case !r.Complete:
		return &exitError{code: Interrupted}
	case !r.Valid:
		return &exitError{code: Invalid}
	}
	return &exitError{code: CheckFailed}
}
