package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gopacket/gopacket/layers"

	"bare.wire/cmd/pktgen/internal/capture"
)

// How far the reader runs ahead: a few batches, so that neither a slow disk nor a large file shows.
const (
	batches      = 4
	batchRecords = 256
	batchBytes   = 1 << 18
)

// keepBytes is the longest packet whose bytes are kept: more than any card sends.
const keepBytes = 1 << 14

// packet is a packet of the file.
type packet struct {
	data []byte // nil when longer than keepBytes
	len  int    // bytes captured
	cut  bool   // there was more on the wire
	at   time.Time
	link layers.LinkType
}

// batch is what the reader hands over at once. Its packets' data lie in arena.
type batch struct {
	arena   []byte
	packets []packet
	read    int64 // bytes of the file, as stored, read by now
	err     error // what came after the packets: io.EOF at the end of a pass
}

// fill reads until the batch is full or the file ends.
func (b *batch) fill(r *capture.Reader) {
	b.arena, b.packets, b.err = b.arena[:0], b.packets[:0], nil
	for len(b.packets) < batchRecords && cap(b.arena)-len(b.arena) >= keepBytes {
		rec, err := r.Next()
		if err != nil {
			b.err = err
			break
		}
		p := packet{len: len(rec.Data), cut: rec.Length > len(rec.Data), at: rec.At, link: rec.Link}
		if p.len <= keepBytes {
			from := len(b.arena)
			b.arena = append(b.arena, rec.Data...)
			p.data = b.arena[from:]
		}
		b.packets = append(b.packets, p)
	}
	b.read = r.Read()
}

// source reads a file ahead, on a goroutine of its own, as often as asked. One goroutine calls next.
type source struct {
	name, format string
	compressed   bool

	full, empty chan *batch
	stop        chan struct{}
	reader      sync.WaitGroup
	mu          sync.Mutex
	open        *capture.Reader // of this pass

	now *batch
	pos int
}

// openSource opens the file for a number of passes; 0: endless. A file that begins with a whole batch of what cannot be
// sent, or is shorter and holds nothing else, is refused here, before a device is touched.
func openSource(name string, passes uint64) (*source, error) {
	r, err := capture.Open(name)
	if err != nil {
		return nil, err
	}
	s := &source{
		name: name, format: r.Format(), compressed: r.Compressed(),
		full: make(chan *batch, batches), empty: make(chan *batch, batches), stop: make(chan struct{}),
		open: r,
	}
	for range batches {
		s.empty <- &batch{arena: make([]byte, 0, batchBytes), packets: make([]packet, 0, batchRecords)}
	}
	b := <-s.empty
	b.fill(r)
	if err := refuse(name, b); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	ended := b.err // the batch is next's from here on
	s.full <- b
	s.reader.Go(func() { s.run(r, passes, ended) })
	return s, nil
}

// refuse says why the file that begins with b cannot be replayed, if so.
func refuse(name string, b *batch) error {
	switch {
	case len(b.packets) > 0:
	case b.err == io.EOF:
		return fmt.Errorf("%s: %w: it holds no packets", name, capture.ErrFormat)
	default:
		return b.err
	}
	for _, p := range b.packets {
		if p.link == layers.LinkTypeEthernet {
			return nil
		}
	}
	return fmt.Errorf("%s: its link type is %s, %w: such frames cannot leave a network card", name, capture.LinkName(b.packets[0].link), capture.ErrLinkType)
}

// run reads what comes after the first batch. err is how that ended.
func (s *source) run(r *capture.Reader, passes uint64, err error) {
	for pass := uint64(1); ; pass++ {
		for err == nil {
			b := s.take()
			if b == nil {
				break
			}
			b.fill(r)
			err = b.err
			s.full <- b // there is room: as much as there are batches
		}
		_ = r.Close() // it was only read
		if err != io.EOF || pass == passes {
			return
		}
		if r, err = s.reopen(); err != nil {
			s.fail(err)
			return
		}
	}
}

// reopen opens the file for a further pass, unless nobody wants one.
func (s *source) reopen() (*capture.Reader, error) {
	r, err := capture.Open(s.name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		_ = r.Close()
		return nil, os.ErrClosed
	default:
	}
	s.open = r
	return r, nil
}

// take returns an empty batch, nil when nobody wants more.
func (s *source) take() *batch {
	select {
	case b := <-s.empty:
		return b
	case <-s.stop:
		return nil
	}
}

// fail hands over an error between two passes.
func (s *source) fail(err error) {
	if b := s.take(); b != nil {
		b.packets, b.err = b.packets[:0], err
		s.full <- b
	}
}

// next returns the next packet, whose data are valid until the next call; io.EOF after the last one of each pass.
func (s *source) next(ctx context.Context) (*packet, error) {
	for s.now == nil || s.pos == len(s.now.packets) {
		if s.now != nil && s.now.err != nil {
			err := s.now.err
			if err == io.EOF { // the next pass, if there is one, is in the next batch
				s.now.err = nil
			}
			return nil, err
		}
		if s.now != nil {
			s.empty <- s.now
			s.now = nil
		}
		select {
		case s.now = <-s.full:
			s.pos = 0
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.pos++
	return &s.now.packets[s.pos-1], nil
}

// read is how far the pass is through the file, bytes as stored; it runs ahead by a few batches at most.
func (s *source) read() int64 {
	if s.now == nil {
		return 0
	}
	return s.now.read
}

// close ends the reading, even one that waits for a pipe.
func (s *source) close() {
	s.mu.Lock()
	close(s.stop)
	_ = s.open.Close() // at the latest now; it was only read
	s.mu.Unlock()
	s.reader.Wait()
}
