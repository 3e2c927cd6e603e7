package virtio_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// leaving is a device that goes, on another goroutine, as soon as the driver has made queues for it.
type leaving struct {
	virtio.Transport
	gone func(error)
	port *virtio.Port
	done chan struct{}
}

func (l *leaving) OnGone(f func(error)) { l.gone = f }

func (l *leaving) SetFeatures(f spec.Features) error {
	if l.port != nil {
		go func() {
			defer close(l.done)
			for !l.port.Laid() {
				runtime.Gosched()
			}
			l.gone(fmt.Errorf("pulled out: %w", nic.ErrGone))
		}()
	}
	return l.Transport.SetFeatures(f)
}

// TestDeviceThatGoesWhileItsQueuesAreMade: what is not finished is not shown to whoever notices it (the race detector looks).
func TestDeviceThatGoesWhileItsQueuesAreMade(t *testing.T) {
	for range 5 { // times, since the two have to meet
		r := newBareRig(t, rigConfig{})
		l := &leaving{Transport: r.seats[0], done: make(chan struct{})}
		p, err := virtio.Open(context.Background(), l, virtio.Options{Space: r.space, Clock: r.clk, Node: -1})
		if err != nil {
			t.Fatal(err)
		}
		l.port = p
		pool := r.pool(mbuf.Config{})
		startErr := p.Start(context.Background(), nic.Config{Pool: pool})
		<-l.done
		if !errors.Is(p.Err(), nic.ErrGone) || startErr != nil && !errors.Is(startErr, nic.ErrGone) {
			t.Errorf("Err %v, start %v", p.Err(), startErr)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := pool.Stats().Out; n != 0 {
			t.Errorf("%d buffers are not back", n)
		}
	}
}
