// Package replay sends the packets of a capture file through a port, at the times they were captured or at a rate, and
// accounts for each of them.
//
// The way of a packet:
//
//	file (capture.Reader, read ahead) -> schedule -> mbuf -> TxQueue.Send … wire … RxQueue.Recv -> counted -> freed
//
// What was captured is what is sent, byte by byte; the card pads what is shorter than 60 bytes. Nothing is lost silently: a
// packet that cannot be sent (shorter than an Ethernet header, longer than the card takes, another link type) is counted by
// reason, frames that the receiving MAC keeps for itself (pause) are counted apart, and the result adds up to the file
// (report.Replay).
//
// Times are absolute, see schedule; a frame that is late is sent all the same, at once, and how late it was is said. One
// goroutine sends and receives, another reads the file.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"bare.wire/clock"
	"bare.wire/cmd/pktgen/internal/capture"
	"bare.wire/cmd/pktgen/internal/engine"
	"bare.wire/cmd/pktgen/internal/report"
	"bare.wire/cmd/pktgen/internal/units"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/vtop"
)

const (
	descriptors = 512
	txBuffers   = 2048 // a ring of 512, a burst of 256 of the longest frames
	rxBuffers   = 3072 // two rings of 512, and a burst of 64 of the longest frames
	houseEvery  = int64(time.Second)
	maxBurst    = 256
)

// Ethernet lengths, bytes without FCS.
const (
	headerLen = 14
	minFrame  = 60
)

// ErrFile wraps whatever the capture file failed with after the replay had begun.
var ErrFile = errors.New("the capture file failed")

// Config is a replay. All of it is required but for what says otherwise.
type Config struct {
	File   *File
	Tx, Rx engine.Port // the same port twice: it is both
	Clock  clock.Clock
	Space  *vtop.Space // that the ports' devices can reach
	Timing Timing
	Burst  int           // frames a doorbell, 1 to 256
	Budget time.Duration // how late a frame may be sent for the result to be valid; 0: by the kind of device
	// Interval between status lines, and how long to wait for late frames at the end; 0: none.
	Interval, Drain time.Duration
	// MaxLoss, TxCapture and RxCapture are optional.
	MaxLoss              *units.Limit
	TxCapture, RxCapture engine.Capture
	// Sink is told of the start, the intervals and the end.
	Sink report.ReplaySink
	Host report.Host
	// Version is pktgen's, About says in a few words what the devices are; optional.
	Version, About string
}

// File is an open capture file.
type File struct {
	name  string
	loops uint64
	size  int64 // bytes as stored; 0: unknown
	src   *source
}

// Open opens a capture file to be sent loops times; 0: until the replay is interrupted. What can be told from its beginning
// is told here: a file that is none, or that holds nothing a network card could send.
func Open(name string, loops uint64) (*File, error) {
	f := &File{name: name, loops: loops}
	if st, err := os.Stat(name); err == nil && st.Mode().IsRegular() {
		f.size = st.Size()
	} else if err == nil && loops != 1 {
		return nil, fmt.Errorf("%s is not a regular file: it can be read once only; leave out --loop", name)
	}
	var err error
	f.src, err = openSource(name, loops)
	return f, err
}

// Close closes the file.
func (f *File) Close() { f.src.close() }

// Run replays. It starts the ports and stops them; the caller closes them, and the file. Cancelling ctx ends the sending
// early; what is on its way is still waited for, and the result says so. The result is returned, and given to the sink, even
// when a device (engine.ErrDevice) or the file (ErrFile) failed in the middle. It is nil only when nothing was sent.
func Run(ctx context.Context, cfg Config) (*report.Replay, error) {
	if cfg.Burst < 1 || cfg.Burst > maxBurst {
		return nil, fmt.Errorf("%w: bursts of %d frames; give 1 to %d", engine.ErrConfig, cfg.Burst, maxBurst)
	}
	// A card that is pulled out makes its registers fault; the driver turns that into an error.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	txPool, err := mbuf.NewPool(mbuf.Config{Name: "replay-tx", Space: cfg.Space, Buffers: txBuffers, ReserveReceive: -1, ReserveControl: -1})
	if err != nil {
		return nil, err
	}
	rxPool, err := mbuf.NewPool(mbuf.Config{Name: "replay-rx", Space: cfg.Space, Buffers: rxBuffers, Workers: 2})
	if err != nil {
		return nil, errors.Join(err, txPool.Close())
	}
	result, err := withPools(ctx, cfg, txPool, rxPool)
	return result, errors.Join(err, txPool.Close(), rxPool.Close())
}

func withPools(ctx context.Context, cfg Config, txPool, rxPool *mbuf.Pool) (result *report.Replay, err error) {
	ports := []engine.Port{cfg.Tx}
	if cfg.Rx.Port != cfg.Tx.Port {
		ports = append(ports, cfg.Rx)
	}
	defer func() { err = engine.StopPorts(ports, err) }()
	// Everything is let in as it comes: all addresses, jumbo frames, tags left where they are.
	longest := min(cfg.Tx.Info().MaxFrame, cfg.Rx.Info().MaxFrame)
	want := nic.Config{Pool: rxPool, MaxFrame: longest, Promiscuous: true}
	for _, p := range ports {
		want.RxDesc = p.RingSize(descriptors)
		want.TxDesc = want.RxDesc
		if err := p.Start(ctx, want); err != nil {
			return nil, fmt.Errorf("%w: start %s: %w", engine.ErrDevice, p.URI, err)
		}
	}
	if err := engine.WaitForLink(ctx, cfg.Clock, ports); err != nil {
		return nil, err
	}
	w, err := newWorker(cfg, ports, txPool, rxPool, longest)
	if err != nil {
		return nil, err
	}
	return w.run(ctx)
}

// fileFault wraps an error of the file, but for its end.
func fileFault(err error) error {
	if err == nil || err == io.EOF {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrFile, err)
}

var _ engine.Capture = (*capture.File)(nil)
