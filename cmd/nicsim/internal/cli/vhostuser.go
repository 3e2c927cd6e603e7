package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/tap"
	"bare.wire/sim/vhostuser"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
)

// vhostFlags are the flags of "nicsim vhost-user".
type vhostFlags struct {
	wire, capture, control, log, fault, summary, features, mac string

	queues, size, mtu, sessions int
	seed                        uint64
	client, verbose, strict     bool
}

// vhostWires are the wires of a vhost-user device.
var vhostWires = []wireKind{wireNone, wireEcho, wireTap, wirePcap, wireUser}

func (a *app) vhostCommand() *cobra.Command {
	var f vhostFlags
	cmd := &cobra.Command{
		Use:   "vhost-user [flags] SOCKET",
		Short: "Offer a virtio-net device to another process on a vhost-user socket",
		Long: `nicsim vhost-user is the back end of vhost-user: a virtio-net device in software for DPDK's virtio_user, a QEMU guest or
pktgen. It listens on SOCKET, or with --client connects to a front end that listens, and serves one front end after
another until it is interrupted. What a driver does that the specification forbids is listed at the end.`,
		Example: `  nicsim vhost-user /run/nic.sock                          what is sent is counted, and comes back
  nicsim vhost-user --wire tap:tap0 /run/nic.sock          the front end talks to the host's kernel
  nicsim vhost-user --wire vhost-user:/run/b /run/a        two front ends, joined by a wire
  dpdk-testpmd --no-pci --no-huge -m 512 --vdev=net_virtio_user0,path=/run/nic.sock -- -i`,
		Args: func(_ *cobra.Command, args []string) error {
			if f.fault == listFaults && len(args) == 0 {
				return nil // no device is made
			}
			if len(args) != 1 {
				return usage("name one socket: nicsim vhost-user /run/nic.sock")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.runVhost(cmd.Context(), &f, args) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.wire, "wire", "echo", "what the device is cabled to: echo (all comes back), none, tap:NAME (the host), pcap:FILE,\nvhost-user:SOCKET (a second device); with the wire's parameters as echo?delay=5us&loss=1e-3 (see below)")
	fl.BoolVar(&f.client, "client", false, "connect to the sockets instead of listening on them, again and again")
	fl.IntVar(&f.queues, "queues", 1, "pairs of queues that there can be, 1 to 128")
	fl.IntVar(&f.size, "size", 1024, "most descriptors of a queue")
	fl.StringVar(&f.features, "features", "", "virtio features that are offered, or with a minus not offered: -event_idx,-ring_packed")
	fl.StringVar(&f.mac, "mac", "", "the first device's address, for front ends that ask")
	fl.IntVar(&f.mtu, "mtu", 1500, "MTU that is told, bytes")
	fl.IntVar(&f.sessions, "sessions", 0, "end after so many front ends have come and gone (0: go on until interrupted)")
	fl.StringVar(&f.capture, "capture", "", "write every frame that is put onto the wire to this pcap file")
	fl.StringVar(&f.control, "control", "", "listen on this unix socket for commands, one JSON object a line (docs/vhost-user.md)")
	fl.StringVar(&f.fault, "fault", "", "fault of the devices from the start on; \"list\" alone prints those there are")
	fl.Uint64Var(&f.seed, "seed", 1, "another number gives other faults and another order")
	fl.BoolVar(&f.strict, "strict", false, "exit with 1 if a driver did what the specification forbids, or broke the protocol")
	fl.StringVar(&f.summary, "summary", "text", "what to say at the end, on standard error: text, json or none")
	fl.StringVar(&f.log, "log", "", "write the log to this file instead of standard error")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log more: every message")
	cmd.SetUsageTemplate(cmd.UsageTemplate() + "\nParameters of a wire:\n" + indent(link.Usage()))
	return cmd
}

// outlet is a device on its socket.
type outlet struct {
	name string
	dev  *virtionet.Device
	back *vhostuser.Backend
}

// outlets is everything that lives between two sockets, or between one and a wire.
type outlets struct {
	clk    clock.Clock
	world  *sim.World
	cable  *cable
	kernel *tap.Net // instead of a cable
	list   []*outlet
	log    *slog.Logger
}

// check reads the flags that need more than pflag does.
func (f *vhostFlags) check() (w wireFlag, cfg virtionet.Config, err error) {
	if w, err = parseWire(f.wire, vhostWires...); err != nil {
		return w, cfg, usage("%w", err)
	}
	switch {
	case f.queues < 1 || f.queues > 128:
		return w, cfg, usage("--queues %d: want 1 to 128", f.queues)
	case f.size < 2 || f.size > spec.MaxQueueSize || f.size&(f.size-1) != 0:
		return w, cfg, usage("--size %d: want a power of two from 2 to %d", f.size, spec.MaxQueueSize)
	case f.mtu < 68 || f.mtu > 65535:
		return w, cfg, usage("--mtu %d: want 68 to 65535", f.mtu)
	case f.sessions < 0:
		return w, cfg, usage("--sessions %d: want 0 or more", f.sessions)
	case f.summary != "text" && f.summary != "json" && f.summary != "none":
		return w, cfg, usage("--summary %q: want text, json or none", f.summary)
	}
	cfg = virtionet.Config{
		MAC: [6]byte{0x02, 0x76, 0x68, 0x75, 0x00, 0x01}, MTU: f.mtu, Pairs: f.queues, Size: f.size, Seed: f.seed,
		Timing: virtionet.Timing{Fetch: -1, Used: -1},
	}
	if f.mac != "" {
		m, err := net.ParseMAC(f.mac)
		if err != nil || len(m) != 6 || m[0]&1 != 0 {
			return w, cfg, usage("--mac %s: want a unicast address, such as 02:00:00:00:00:01", f.mac)
		}
		cfg.MAC = [6]byte(m)
	}
	only, err := spec.ParseRestriction(f.features)
	if err != nil {
		return w, cfg, usage("--features: %w", err)
	}
	// An IOMMU's addresses, and the order of real devices, are not offered.
	cfg.Features = only.Apply(^(spec.FeatureAccessPlatform | spec.FeatureOrderPlatform))
	if f.queues == 1 {
		cfg.Features &^= spec.FeatureMQ
	}
	if cfg.Features == 0 { // which would stand for all of them
		return w, cfg, usage("--features %s: nothing is left to offer", f.features)
	}
	if cfg.Faults, err = virtionet.FaultByName(f.fault); err != nil {
		return w, cfg, usage("--fault: %w", err)
	}
	return w, cfg, nil
}

func (a *app) runVhost(ctx context.Context, f *vhostFlags, args []string) (err error) {
	if f.fault == listFaults {
		_, err := fmt.Fprintln(a.out, strings.Join(virtionet.FaultNames(), "\n"))
		return err
	}
	w, cfg, err := f.check()
	if err != nil {
		return err
	}
	log, closer, err := a.logger(f.log, f.verbose)
	if err != nil {
		return err
	}
	defer closer.Close()
	o := &outlets{clk: clock.Real(), log: log, cable: &cable{}}
	o.world = sim.NewWorld(o.clk)
	defer func() { err = besides(err, o.close()) }()
	if err := o.build(f, w, cfg, args[0]); err != nil {
		return err
	}
	return a.serve(ctx, f, o)
}

// build makes the wire and the devices.
func (o *outlets) build(f *vhostFlags, w wireFlag, cfg virtionet.Config, socket string) (err error) {
	if w.kind == wireTap && w.bare() && f.capture == "" {
		// Without a wire between them device and kernel leave checksums and segments to each other.
		if o.kernel, err = tap.OpenNet(w.arg, o.world); err != nil {
			return environment(err)
		}
		cfg.Hold = true
		return o.add(f, cfg, socket, o.kernel)
	}
	if o.cable, err = plug(o.world, w, f.capture); err != nil {
		return err
	}
	if o.cable.wire == nil { // --wire none: a wire that ends nowhere, so that the device has a link
		if o.cable.wire, err = link.New(link.Config{}); err != nil {
			return &exitError{Failed, err}
		}
		addSink(o.world, o.cable.wire.B(), false)
	}
	if err := o.add(f, cfg, socket, virtionet.OnWire(o.cable.wire.A())); err != nil || w.kind != wireUser {
		return err
	}
	cfg.MAC[5]++
	cfg.Seed++
	return o.add(f, cfg, w.arg, virtionet.OnWire(o.cable.wire.B()))
}

// add makes a device and its socket.
func (o *outlets) add(f *vhostFlags, cfg virtionet.Config, socket string, behind virtionet.Net) error {
	mem := &vhostuser.Memory{}
	cfg.Name, cfg.Memory, cfg.World, cfg.Net = fmt.Sprintf("device %d (%s)", len(o.list), socket), mem, o.world, behind
	dev, err := virtionet.New(cfg)
	if err != nil {
		return usage("%w", err)
	}
	dev.EnableDMALog(dmaLogLen)
	out := &outlet{name: cfg.Name, dev: dev}
	o.list = append(o.list, out)
	out.back, err = vhostuser.New(vhostuser.Config{
		Path: socket, Client: f.client, World: o.world, Device: dev, Memory: mem, Sessions: f.sessions, Logger: o.log,
	})
	return environment(err)
}

// serve serves front ends until ctx ends, or all sockets have had theirs.
func (a *app) serve(ctx context.Context, f *vhostFlags, o *outlets) (err error) {
	run, cancel := context.WithCancel(ctx)
	var beside, fronts sync.WaitGroup
	var ctl *control
	defer func() {
		cancel()
		if ctl != nil {
			ctl.close()
		}
		beside.Wait()
	}()
	if f.control != "" {
		if ctl, err = listen(f.control, o.answer); err != nil {
			return environment(err)
		}
		beside.Go(ctl.serve)
	}
	beside.Go(func() { _ = o.world.Run(run) }) // ends with run, and only then
	failed := make(chan error, len(o.list))
	for _, out := range o.list {
		fronts.Go(func() {
			if err := out.back.Run(run); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	fronts.Wait()
	select {
	case err := <-failed:
		return &exitError{Failed, err}
	default:
	}
	s := o.summarise()
	if err := s.print(a.log, f.summary); err != nil {
		return &exitError{Failed, err}
	}
	if f.strict && s.misused() {
		a.status = int(Misused)
	}
	return nil
}

// close gives everything back, front ends first.
func (o *outlets) close() error {
	var errs []error
	for _, out := range o.list {
		if out.back != nil {
			errs = append(errs, out.back.Close())
		}
		errs = append(errs, out.dev.Close())
	}
	if o.kernel != nil {
		errs = append(errs, o.kernel.Close())
	}
	return errors.Join(append(errs, o.cable.close())...)
}
