// Package engine runs a test: it sends frames through one port on a schedule, receives what comes back through another (or
// the same), accounts for every frame, and hands the result to package report.
//
// One goroutine does everything, in this order, again and again: status line when it is time, frames that are due (package
// pace), frames that have arrived (package account), then nothing. The way of a frame:
//
//	template (frame) -> mbuf -> TxQueue.Send … wire … RxQueue.Recv -> mark (sig) -> account, hist -> freed
//
// Doing nothing depends on the clock. On a real one the worker polls while frames are on their way or the next one is due
// within 2 ms, and sleeps otherwise. On a virtual clock it always sleeps, and sleeping moves time to the next thing that
// happens; so a run is exact and takes as long as the processor needs.
//
// In the steady state nothing is allocated.
package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"bare.wire/clock"
	"bare.wire/cmd/pktgen/internal/frame"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/vtop"
)

// Catch-up budgets: how late a frame may be before it is skipped. A software card shares its processor with everything else,
// so a stall there says nothing about a network; hardware is held to a millisecond.
const (
	SoftwareBudget = 100 * time.Millisecond
	HardwareBudget = time.Millisecond
)

// Defaults.
const (
	DefaultDrain   = 500 * time.Millisecond
	descriptors    = 512
	txBuffers      = 2048
	rxBuffers      = 2048
	linkPatience   = 5 * time.Second
	housekeepEvery = int64(time.Second)
)

// ErrLink says that a port has no link.
var ErrLink = errors.New("no link")

// ErrConfig says that the run cannot be as it was asked for.
var ErrConfig = errors.New("cannot be run as asked")

// ErrDevice wraps whatever a device failed with.
var ErrDevice = errors.New("device failure")

// Capture takes copies of frames: a capture.File.
type Capture interface {
	Frame(head *mbuf.Buf, at time.Time) error
	Bytes(frame []byte, at time.Time) error
}

// Port is a port and how the user called it.
type Port struct {
	nic.Port
	URI string
}

// Config is a test. All of it is required but for what says otherwise.
type Config struct {
	Tx, Rx Port // the same port twice: it is both
	Clock  clock.Clock
	Space  *vtop.Space // that the ports' devices can reach
	Frame  frame.Spec  // a zero SrcMAC, DstMAC means that of the port; Run and Stream are the engine's
	Rate   units.Rate
	// Duration and Count end the run, whichever comes first; 0: no such end.
	Duration time.Duration
	Count    uint64
	Burst    int           // frames a doorbell; 0: pace.DefaultBurst
	Budget   time.Duration // 0: by the kind of device
	Interval time.Duration // 0: no status lines
	Drain    time.Duration // how long to wait for late frames; 0: none
	Latency  bool
	Seed     uint64
	// Checks; optional.
	MaxLoss *units.Limit
	// TxCapture and RxCapture; optional.
	TxCapture, RxCapture Capture
	// Stall makes the generator do nothing for that long in the middle of the run, to show what a run looks like whose host
	// stood still; 0: not.
	Stall time.Duration
	// Sink is told of the start, the intervals and the end.
	Sink report.Sink
	Host report.Host
	// Version is pktgen's, About says in a few words what the devices are; optional.
	Version, About string
}

// Run does the test. It starts the ports and stops them; the caller closes them. Cancelling ctx ends the sending early; what
// is on its way is still waited for, and the result says so. The result is returned, and given to the sink, even when a
// device failed in the middle; then the error wraps ErrDevice. It is nil only when nothing was sent.
func Run(ctx context.Context, cfg Config) (*report.Run, error) {
	// A card that is pulled out makes its registers fault; the driver turns that into an error.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	txPool, rxPool, err := pools(cfg)
	if err != nil {
		return nil, err
	}
	result, err := withPools(ctx, cfg, txPool, rxPool)
	// Both pools are empty of users by now; one that is not names what has leaked.
	return result, errors.Join(err, txPool.Close(), rxPool.Close())
}

func pools(cfg Config) (tx, rx *mbuf.Pool, err error) {
	const kib = 1024
	size := max(mbuf.DefaultSize, (cfg.Frame.Size+kib-1)/kib*kib)
	tx, err = mbuf.NewPool(mbuf.Config{Name: "pktgen-tx", Space: cfg.Space, Buffers: txBuffers, Size: size, ReserveReceive: -1, ReserveControl: -1})
	if err != nil {
		return nil, nil, err
	}
	rx, err = mbuf.NewPool(mbuf.Config{Name: "pktgen-rx", Space: cfg.Space, Buffers: rxBuffers, Workers: 2})
	if err != nil {
		return nil, nil, errors.Join(err, tx.Close())
	}
	return tx, rx, nil
}

func withPools(ctx context.Context, cfg Config, txPool, rxPool *mbuf.Pool) (result *report.Run, err error) {
	ports := []Port{cfg.Tx}
	if cfg.Rx.Port != cfg.Tx.Port {
		ports = append(ports, cfg.Rx)
	}
	defer func() { err = StopPorts(ports, err) }()
	want := nic.Config{Pool: rxPool, MaxFrame: max(1518, cfg.Frame.Size-units.FCS)}
	for _, p := range ports {
		want.RxDesc = p.RingSize(descriptors)
		want.TxDesc = want.RxDesc
		if err := p.Start(ctx, want); err != nil {
			return nil, fmt.Errorf("%w: start %s: %w", ErrDevice, p.URI, err)
		}
	}
	if err := WaitForLink(ctx, cfg.Clock, ports); err != nil {
		return nil, err
	}
	w, err := newWorker(cfg, ports, txPool, rxPool)
	if err != nil {
		return nil, err
	}
	return w.run(ctx)
}

// StopPorts stops all ports after a run that ended with err, and returns that with what went wrong. A port that is gone is closed,
// too: what its card could still have written to is in quarantine until then, and the pools could not be closed.
func StopPorts(ports []Port, err error) error {
	said := errors.Is(err, nic.ErrGone)
	for _, p := range ports {
		stop := p.Stop()
		if gone := p.Err(); stop != nil && gone != nil {
			stop = p.Close()
			if !said {
				stop = errors.Join(gone, stop)
			}
		}
		if stop != nil {
			err = errors.Join(err, fmt.Errorf("%w: stop %s: %w", ErrDevice, p.URI, stop))
		}
	}
	return err
}

// RingSize is n descriptors, or as many as the port can do instead: a virtual machine's card often has 256, and on virtio's legacy
// interface a ring has what the device says, which may be more.
func (p Port) RingSize(n int) int { return max(min(n, p.Info().MaxDesc), p.Info().MinDesc) }

// WaitForLink waits until all ports have a link, and throws away what arrives meanwhile.
func WaitForLink(ctx context.Context, clk clock.Clock, ports []Port) error {
	var bufs [32]*mbuf.Buf
	until := clk.Nanos() + int64(linkPatience)
	for {
		down := ""
		for _, p := range ports {
			p.Housekeep(clk.Now())
			for _, b := range bufs[:p.Rx(0).Recv(bufs[:])] {
				b.Free()
			}
			if err := p.Err(); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrDevice, p.URI, err)
			}
			if !p.Link().Up {
				down = p.URI
			}
		}
		if down == "" {
			return nil
		}
		if clk.Nanos() >= until {
			return fmt.Errorf("%w: %s: %w after %v; %s", ErrDevice, down, ErrLink, linkPatience, linkRemedy(down))
		}
		if err := clk.Sleep(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("wait for the link of %s: %w", down, err)
		}
	}
}

// linkRemedy is what to do about a port without a link.
func linkRemedy(uri string) string {
	if name, ok := strings.CutPrefix(uri, "tap:"); ok {
		return fmt.Sprintf("the interface is down: make it first and bring it up, ip tuntap add dev %s mode tap && ip link set %s up", name, name)
	}
	return "check the cable, the transceiver and the other end"
}
