package ixgbe_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/ixgbe"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/sim/nullnic"
	"bare.wire/vtop"
)

// noticing is a function that notices by itself that it has gone.
type noticing struct {
	*nullnic.NIC
	bar    pci.BAR
	told   func(error)
	resets int
	reset  error
}

func (f *noticing) BAR(int) (pci.BAR, error)        { return f.bar, nil }
func (f *noticing) OnGone(g func(error))            { f.told = g }
func (f *noticing) Reset(ctx context.Context) error { f.resets++; return f.reset }

func (f *noticing) lost(err error) { f.told(fmt.Errorf("%s: %w", f.Name(), err)) }

// goneRig is a started port whose registers lie in a file: truncating it is like pulling the card.
type goneRig struct {
	*testing.T
	fn    *noticing
	port  *ixgbe.Port
	pool  *mbuf.Pool
	cache *mbuf.Cache
	file  *os.File
}

func newGoneRig(t *testing.T) *goneRig {
	t.Helper()
	space := vtop.NewMapped()
	card, err := nullnic.New(nullnic.Config{Name: "null", Memory: space})
	if err != nil {
		t.Fatal(err)
	}
	r := &goneRig{T: t, fn: &noticing{NIC: card}}
	// The null card's registers are answers in memory: what the driver finds there in the file is the same.
	if r.file, err = os.Create(filepath.Join(t.TempDir(), "resource0")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.file.Close() })
	mem := card.Mem()
	if err := r.file.Truncate(int64(len(mem))); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Mmap(int(r.file.Fd()), 0, len(mem), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(at); err != nil {
			t.Error(err)
		}
	})
	guarded, err := pci.GuardBAR(at, r.fn.lost)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := pci.MapBAR(mem)
	if err != nil {
		t.Fatal(err)
	}
	r.fn.bar = &both{plain, guarded}
	if r.port, err = ixgbe.Open(context.Background(), r.fn, ixgbe.Options{Space: space, Clock: card.Clock(clock.Real()), Node: -1}); err != nil {
		t.Fatal(err)
	}
	if r.pool, err = mbuf.NewPool(mbuf.Config{Name: "gone", Space: space, Buffers: 2048}); err != nil {
		t.Fatal(err)
	}
	if err := r.port.Start(context.Background(), nic.Config{Pool: r.pool}); err != nil {
		t.Fatal(err)
	}
	r.cache = r.pool.NewCache()
	return r
}

// both are registers that answer as the null card does, and can be taken away as a file can.
type both struct{ answers, file pci.BAR }

func (b *both) Size() int { return b.answers.Size() }

func (b *both) Read32(off uint32) uint32 {
	if v := b.file.Read32(off); v != 0 {
		return v
	}
	return b.answers.Read32(off)
}

func (b *both) Write32(off uint32, v uint32) {
	b.file.Write32(off, 0)
	b.answers.Write32(off, v)
}

func (r *goneRig) frames(n int) []*mbuf.Buf {
	r.Helper()
	list := make([]*mbuf.Buf, n)
	for i := range list {
		list[i] = r.cache.Alloc()
		if _, err := list[i].Reserve(60); err != nil {
			r.Fatal(err)
		}
	}
	return list
}

// end closes the port; every buffer is back.
func (r *goneRig) end() {
	r.Helper()
	r.cache.Close()
	_ = r.port.Close() // which says that the card is gone
	if err := r.pool.Close(); err != nil {
		r.Error(err)
	}
}

// TestRegistersThatVanishMakeThePortGone touches them through every entry of the driver.
func TestRegistersThatVanishMakeThePortGone(t *testing.T) {
	for what, touch := range map[string]func(*goneRig){
		"Send": func(r *goneRig) {
			list := r.frames(8)
			for _, b := range list[r.port.Tx(0).Send(list):] {
				r.cache.Free(b)
			}
		},
		"Arm": func(r *goneRig) {
			w, err := nic.NewWaiter(clock.Real())
			if err != nil {
				r.Fatal(err)
			}
			defer w.Close()
			r.port.Rx(0).Arm(w)
		},
		"Housekeep":      func(r *goneRig) { r.port.Housekeep(clock.Real().Now()) },
		"SetPromiscuous": func(r *goneRig) { _ = r.port.Filters().SetPromiscuous(true) },
		"Dump":           func(r *goneRig) { r.port.Dump() },
		"Stop":           func(r *goneRig) { _ = r.port.Stop() },
		"Close":          func(r *goneRig) { _ = r.port.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			r := newGoneRig(t)
			if err := r.file.Truncate(0); err != nil {
				t.Fatal(err)
			}
			touch(r)
			if err := r.port.Err(); !errors.Is(err, nic.ErrGone) || !errors.Is(err, pci.ErrGone) {
				t.Errorf("the port says %v", err)
			}
			r.end()
		})
	}
}

// TestRecvAtRegistersThatVanish: frames that came before are handed out; the doorbell finds out.
func TestRecvAtRegistersThatVanish(t *testing.T) {
	r := newGoneRig(t)
	if err := r.fn.Attach(); err != nil {
		t.Fatal(err)
	}
	if err := r.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	into := make([]*mbuf.Buf, 64)
	got := 0
	for range 64 { // until a doorbell is due
		r.fn.RxStep(len(into))
		n := r.port.Rx(0).Recv(into)
		for _, b := range into[:n] {
			r.cache.Free(b)
		}
		if got += n; n == 0 {
			break
		}
	}
	if got == 0 || !errors.Is(r.port.Err(), nic.ErrGone) {
		t.Errorf("%d frames, the port says %v", got, r.port.Err())
	}
	r.fn.Detach()
	r.end()
}

func TestUnplugWakesWhoeverSleeps(t *testing.T) {
	r := newGoneRig(t)
	w, err := nic.NewWaiter(clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !r.port.Rx(0).Arm(w) {
		t.Fatal("Arm says that something has come")
	}
	r.fn.told(fmt.Errorf("the kernel wants it back: %w", pci.ErrGone))
	if _, err := w.Wait(math.MaxInt64); !errors.Is(err, nic.ErrGone) || !strings.Contains(err.Error(), "wants it back") {
		t.Errorf("the sleeper is told %v", err)
	}
	if n := r.port.Rx(0).Recv(make([]*mbuf.Buf, 8)); n != 0 {
		t.Errorf("Recv returns %d", n)
	}
	r.end()
}

// TestUnplugDuringStartAndStop: whoever is told in the middle of it neither waits nor touches queues that are being made.
func TestUnplugDuringStartAndStop(t *testing.T) {
	r := newGoneRig(t)
	if err := r.port.Stop(); err != nil {
		t.Fatal(err)
	}
	told := make(chan bool)
	go func() {
		r.fn.told(fmt.Errorf("pulled: %w", pci.ErrGone))
		close(told)
	}()
	_ = r.port.Start(context.Background(), nic.Config{Pool: r.pool}) // it may be done before, or fail
	<-told
	_ = r.port.Stop()
	if err := r.port.Start(context.Background(), nic.Config{Pool: r.pool}); !errors.Is(err, nic.ErrGone) {
		t.Errorf("started again: %v", err)
	}
	r.end()
}

func TestCardThatOnlyItselfCanResetIsClosedWell(t *testing.T) {
	r := newGoneRig(t)
	r.fn.reset = fmt.Errorf("no FLR: %w", errors.ErrUnsupported)
	r.cache.Close()
	if err := r.port.Close(); err != nil || r.fn.resets != 1 {
		t.Errorf("close: %v", err)
	}
	if err := r.pool.Close(); err != nil {
		t.Error(err)
	}
	other := newGoneRig(t)
	other.fn.reset = errors.New("the reset failed")
	other.cache.Close()
	if err := other.port.Close(); err == nil {
		t.Error("a reset that failed is no error")
	}
	if err := other.pool.Close(); err != nil {
		t.Error(err)
	}
}
