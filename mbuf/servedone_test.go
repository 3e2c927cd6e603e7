package mbuf

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"bare.wire/hugepage"
	"bare.wire/vtop"
)

func TestServeDoneCallsWhatOthersFreed(t *testing.T) {
	space := vtop.NewMapped()
	region, err := hugepage.Alloc(hugepage.Config{Size: 1 << 16, Node: hugepage.AnyNode})
	if err != nil {
		t.Fatal(err)
	}
	if err := space.Add(region); err != nil {
		t.Fatal(err)
	}
	p := newTestPool(t, Config{Space: space, Buffers: 8, Externals: 16})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.ServeDone(ctx) }()

	const n = 1000
	var calls atomic.Int64
	all := make(chan struct{})
	for i := 0; i < n; {
		b, err := p.External(region, i, 10, func() {
			if calls.Add(1) == n {
				close(all)
			}
		})
		if errors.Is(err, ErrNoBuffer) {
			continue // the server will free some
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Free()
		i++
	}
	<-all
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ServeDone returned %v", err)
	}
	closePool(t, p)
	if err := space.Remove(context.Background(), region); err != nil {
		t.Error(err)
	}
	if err := region.Close(); err != nil {
		t.Error(err)
	}
}
