package ixgbe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/nic82599"
)

// patience is how long Open, Start and Stop may take whatever the card does.
const patience = 10 * time.Second

// never are cards on which something that the driver waits for does not happen.
var never = []struct {
	name   string
	faults nic82599.Faults
	words  []string // in the error: what did not happen, and what to do
	open   bool     // Open meets it; else Start does
}{
	{"ARD", nic82599.Faults{ARDNever: true}, []string{"EEC.ARD", "EEPROM may be blank"}, true},
	{"DMAIDONE", nic82599.Faults{DMAIDoneNever: true}, []string{"RDRXCTL.DMAIDONE", "power-cycle"}, true},
	{"reset", nic82599.Faults{StuckReset: true}, []string{"CTRL.RST", "power-cycle"}, true},
	{"checksum", nic82599.Faults{BadEEPROM: true}, []string{"EEPROM checksum", "damaged"}, true},
	{"SMBI", nic82599.Faults{SMBIAlways: true}, []string{"SWSM.SMBI", "unload"}, true},
	{"GSSR", nic82599.Faults{FirmwareHeld: (reg.GSSR_EEP_SM | reg.GSSR_MAC_CSR_SM) << reg.GSSR_FW_Shift}, []string{"semaphore", "GSSR", "unload"}, true},
	{"MAC semaphore", nic82599.Faults{FirmwareHeld: reg.GSSR_MAC_CSR_SM << reg.GSSR_FW_Shift}, []string{"semaphore", "GSSR", "unload"}, false},
	{"ENABLE", nic82599.Faults{EnableNever: 1}, []string{"RXDCTL.ENABLE", "close"}, false},
	{"ENABLE of the last queue", nic82599.Faults{EnableNever: 1 << 3}, []string{"RXDCTL.ENABLE", "close"}, false},
	{"SECRX", nic82599.Faults{SECRXNever: true}, []string{"SECRXSTAT.SECRX_RDY", "close"}, false},
}

func TestOpenFailsWithAReason(t *testing.T) {
	for _, c := range never {
		if !c.open {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r := newBareRig(t, rigConfig{faults: [2]nic82599.Faults{c.faults}})
			_, err := r.open(0)
			r.says(err, append(c.words, "sim:a")...)
			r.within(patience)
			r.end()
		})
	}
}

// TestStartFailsWithAReason starts a card that was good when it was opened: the error says why it does not start, every
// buffer is back, and once the card is good again so is the port.
func TestStartFailsWithAReason(t *testing.T) {
	for _, c := range never {
		if c.faults.BadEEPROM || c.name == "GSSR" {
			continue // nobody looks again
		}
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigConfig{})
			p, pool := r.ports[0], r.pool(mbuf.Config{})
			cfg := nic.Config{Pool: pool, RxQueues: 4, TxQueues: 4}
			began := r.clk.Nanos()
			r.cards[0].SetFaults(c.faults)
			err := p.Start(context.Background(), cfg)
			r.says(err, append(c.words, "sim:a")...)
			r.within(time.Duration(began) + patience)
			if gone := errors.Is(p.Err(), nic.ErrGone); gone != c.faults.StuckReset {
				t.Errorf("the port is gone: %v", p.Err())
			}
			if s := pool.Stats(); s.Out != 0 {
				t.Errorf("%d buffers are not back: %+v", s.Out, s)
			}
			_, _ = p.Stats(), p.Link()
			p.Housekeep(r.clk.Now())
			r.cards[0].SetFaults(nic82599.Faults{})
			if err := p.Start(context.Background(), cfg); c.faults.StuckReset {
				if !errors.Is(err, nic.ErrGone) {
					t.Errorf("start again: %v", err)
				}
			} else if err != nil {
				t.Errorf("the card is good again, and: %v", err)
			} else if err := p.Stop(); err != nil {
				t.Error(err)
			}
			r.end()
		})
	}
}

// says checks the words of an error.
func (r *rig) says(err error, words ...string) {
	r.Helper()
	if err == nil {
		r.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func (r *rig) within(limit time.Duration) {
	r.Helper()
	if now := time.Duration(r.clk.Nanos()); now > limit {
		r.Errorf("it took until %v, want %v at most", now, limit)
	}
}

// TestCardsThatAreDifficultWork has faults with which the driver has to cope.
func TestCardsThatAreDifficultWork(t *testing.T) {
	for name, f := range map[string]nic82599.Faults{
		"requests never end":      {StickyGIO: true},
		"semaphore left set":      {SMBIHeld: true},
		"stale data before DD":    {StaleData: true},
		"status in any order":     {ShuffledStatus: true},
		"one descriptor a fetch":  {PartialFetch: true},
		"all of these":            {StickyGIO: true, SMBIHeld: true, StaleData: true, ShuffledStatus: true, PartialFetch: true},
		"other firmware at work":  {FirmwareHeld: reg.GSSR_PHY0_SM << reg.GSSR_FW_Shift},
		"another queue is broken": {EnableNever: 1 << 9, DisableNever: 1 << 9},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigConfig{faults: [2]nic82599.Faults{f, f}})
			r.start(nic.Config{})
			r.exchange(200)
			r.end()
		})
	}
}

func TestFirmwareThatLetsGoInTimeIsWaitedFor(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.cards[0].SetFaults(nic82599.Faults{FirmwareHeld: reg.GSSR_MAC_CSR_SM << reg.GSSR_FW_Shift})
	r.clk.At(r.clk.Nanos()+int64(300*time.Millisecond), func() { r.cards[0].SetFaults(nic82599.Faults{}) })
	r.start(nic.Config{})
	r.exchange(10)
	r.end()
}

func TestCancelledStartEndsAtOnce(t *testing.T) {
	r := newRig(t, rigConfig{})
	pool := r.pool(mbuf.Config{})
	for after := time.Duration(0); after < 40*time.Millisecond; after += 1700 * time.Microsecond {
		ctx, cancel := context.WithCancel(context.Background())
		began := r.clk.Nanos()
		r.clk.At(began+int64(after), cancel)
		err := r.ports[0].Start(ctx, nic.Config{Pool: pool})
		if err == nil { // it was through by then
			err = context.Canceled
			if e := r.ports[0].Stop(); e != nil {
				t.Error(e)
			}
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled after %v: %v", after, err)
		}
		if s := pool.Stats(); s.Out != 0 {
			t.Errorf("cancelled after %v: %d buffers are not back", after, s.Out)
		}
		cancel()
	}
	r.end()
}

func TestQueueThatDoesNotStopLosesTheBus(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.start(nic.Config{})
	r.cards[0].SetFaults(nic82599.Faults{DisableNever: 1})
	r.exchange(20)
	if err := r.ports[0].Stop(); err != nil {
		t.Errorf("bus mastering can be switched off, so every buffer is safe: %v", err)
	}
	if v, err := r.fns[0].ReadConfig(4, 2); err != nil || v&4 != 0 {
		t.Errorf("PCI command is %#x, %v: bus mastering is on", v, err)
	}
	r.cards[0].SetFaults(nic82599.Faults{})
	if err := r.ports[0].Start(context.Background(), nic.Config{Pool: r.pool(mbuf.Config{})}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.housekeep()
	r.exchange(20)
	r.end()
}

// TestBuffersOfACardThatCannotBeStoppedAreKept is a card on which neither the queues nor bus mastering can be switched off:
// what it has stays out of use until Close has reset it.
func TestBuffersOfACardThatCannotBeStoppedAreKept(t *testing.T) {
	r := newRig(t, rigConfig{})
	rx, tx := r.pool(mbuf.Config{}), r.pool(mbuf.Config{})
	if err := r.ports[0].Start(context.Background(), nic.Config{Pool: rx, RxDesc: 64}); err != nil {
		t.Fatal(err)
	}
	cache := tx.NewCache()
	if n := r.ports[0].Tx(0).Send([]*mbuf.Buf{r.frame(cache, r.ports[1], 60, 1), r.frame(cache, r.ports[1], 60, 2)}); n != 2 {
		t.Fatal(n)
	}
	cache.Close()
	r.cards[0].SetFaults(nic82599.Faults{DisableNever: 1, LinkNever: true})
	r.fns[0].deaf = true
	r.says(r.ports[0].Stop(), "65 buffers are in quarantine", "sim:a", "Close")
	if q := rx.Stats().Quarantined + tx.Stats().Quarantined; q != 65 || r.ports[0].Stats().Quarantined != 65 {
		t.Errorf("%d buffers are in quarantine, the port says %d; want 63 + 2", q, r.ports[0].Stats().Quarantined)
	}
	r.says(tx.Close(), "2 of", "quarantined: 2 by sim:a")
	r.says(r.ports[0].Start(context.Background(), nic.Config{Pool: rx}), "quarantine", "Close")
	if err := r.ports[0].Stop(); err != nil {
		t.Errorf("stop again: %v", err)
	}
	r.fns[0].deaf = false
	if err := r.ports[0].Close(); err != nil {
		t.Error(err)
	}
	if r.fns[0].resets != 1 {
		t.Errorf("%d resets, want 1", r.fns[0].resets)
	}
	r.end()
}

// TestBuffersStayKeptWhenNothingStopsTheCard is the worst case: not even a reset answers. Then nobody gets them, ever.
func TestBuffersStayKeptWhenNothingStopsTheCard(t *testing.T) {
	r := newRig(t, rigConfig{})
	rx := r.pool(mbuf.Config{})
	if err := r.ports[0].Start(context.Background(), nic.Config{Pool: rx, RxDesc: 64}); err != nil {
		t.Fatal(err)
	}
	r.cards[0].SetFaults(nic82599.Faults{DisableNever: 1})
	r.fns[0].deaf, r.fns[0].noReset, r.fns[0].noClose = true, true, true
	r.says(r.ports[0].Close(), "may still write to 63 buffers", "sim:a")
	r.says(rx.Close(), "63 of", "quarantined: 63 by sim:a")
	r.pools = nil
	rx.ReleaseQuarantine("sim:a") // the test knows better
	r.pools = append(r.pools, rx)
	r.ports[0] = nil
	r.end()
}

// TestTransmitterThatStopsIsNoticed covers the ways in which a card ceases to send: the port is gone within seconds, the
// error says where it stands, and a card that is reset works again.
func TestTransmitterThatStopsIsNoticed(t *testing.T) {
	for name, f := range map[string]nic82599.Faults{"DMA stops": {DMAStops: 1}, "no write-back": {NoWriteBack: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigConfig{start: time.Hour})
			r.start(nic.Config{TxDesc: 64})
			r.exchange(100)
			r.cards[0].SetFaults(f)
			pool := r.pool(mbuf.Config{})
			cache := pool.NewCache()
			for i := range 100 {
				b := r.frame(cache, r.ports[1], 60, byte(i))
				if r.ports[0].Tx(0).Send([]*mbuf.Buf{b}) == 0 {
					b.Free()
				}
			}
			cache.Close()
			began := r.clk.Nanos()
			for r.ports[0].Err() == nil && r.clk.Nanos() < began+int64(time.Minute) {
				r.sleep(time.Second)
				r.housekeep()
			}
			r.says(r.ports[0].Err(), "sim:a", "queue 0", "TDH", "TDT", "Close")
			if !errors.Is(r.ports[0].Err(), nic.ErrGone) {
				t.Error("it is not ErrGone")
			}
			r.within(time.Duration(began) + 8*time.Second)
			if err := r.ports[1].Err(); err != nil {
				t.Errorf("the other port: %v", err)
			}
			if err := r.ports[0].Close(); err != nil {
				t.Error(err)
			}
			if n := pool.Stats().Out; n != 0 {
				t.Errorf("%d buffers are not back", n)
			}
			// A new driver on the card, which has been reset and is good again.
			r.cards[0].SetFaults(nic82599.Faults{})
			p, err := r.open(0)
			if err != nil {
				t.Fatal(err)
			}
			r.ports[0] = p
			if err := p.Start(context.Background(), nic.Config{Pool: r.pool(mbuf.Config{})}); err != nil {
				t.Fatal(err)
			}
			r.settle()
			r.housekeep()
			r.drain(1, 0)
			r.exchange(50)
			r.end()
		})
	}
}

// TestNoHangIsSeenWhereThereIsNone has what looks like one to somebody who looks rarely: a frame that has just been posted
// after an idle spell, a ring that has gone round, a link that is down.
func TestNoHangIsSeenWhereThereIsNone(t *testing.T) {
	r := newRig(t, rigConfig{start: time.Hour, card: nic82599.Config{Timing: nic82599.Timing{Fetch: time.Microsecond, WriteBack: time.Millisecond}}})
	r.start(nic.Config{TxDesc: 64})
	pool := r.pool(mbuf.Config{})
	cache := pool.NewCache()
	post := func() { // a frame that the card has not reported yet when Housekeep looks
		if n := r.ports[0].Tx(0).Send([]*mbuf.Buf{r.frame(cache, r.ports[1], 60, 1)}); n != 1 {
			t.Fatal("the ring is full")
		}
		r.ports[0].Port.Housekeep(r.clk.Now())
	}
	for range 10 {
		post()
		r.sleep(20 * time.Second)
		r.drain(1, 0)
		r.housekeep() // idle …
		r.sleep(20 * time.Second)
	}
	// Once round the ring exactly between two looks.
	for range 3 {
		post()
		for range 63 {
			r.sleep(time.Second / 2)
			if n := r.ports[0].Tx(0).Send([]*mbuf.Buf{r.frame(cache, r.ports[1], 60, 1)}); n != 1 {
				t.Fatal("the ring is full")
			}
			r.drain(1, 0)
		}
		r.sleep(time.Second)
	}
	post()
	r.sleep(10 * time.Second)
	r.cards[1].SetCable(false)
	r.sleep(time.Second)
	for range 20 { // with the link down nothing moves, and that is right
		post()
		r.sleep(time.Second)
	}
	r.cards[1].SetCable(true)
	r.settle()
	r.housekeep()
	r.drain(1, 0)
	r.ports[0].Tx(0).Reclaim()
	cache.Close()
	if err := r.ports[0].Err(); err != nil {
		t.Error(err)
	}
	r.end()
}

func TestLinkThatNeverComesIsNoReasonNotToStart(t *testing.T) {
	r := newRig(t, rigConfig{faults: [2]nic82599.Faults{{LinkNever: true}}})
	r.start(nic.Config{})
	r.sleep(time.Minute)
	r.housekeep()
	if l := r.ports[0].Link(); l.Up {
		t.Errorf("link %v", l)
	}
	r.send(5, 60) // nobody sees them, and they come back with Stop
	if err := r.ports[0].Stop(); err != nil {
		t.Error(err)
	}
	if n := r.ports[0].Stats().TxDropped[nic.TxLost]; n != 5 {
		t.Errorf("%d frames are counted as lost, want 5", n)
	}
	r.end()
}

// TestRemovalAtEveryWrite pulls the card out before each register write of Open and Start in turn.
func TestRemovalAtEveryWrite(t *testing.T) {
	step := 23
	if full() {
		step = 1
	}
	for n, done := 1, false; !done; n += step {
		r := newBareRig(t, rigConfig{})
		writes := 0
		r.fns[0].onWrite = func(uint32) {
			if writes++; writes == n {
				r.cards[0].Remove()
			}
		}
		pool := r.pool(mbuf.Config{})
		p, err := r.open(0)
		if err == nil {
			r.ports[0] = p
			err = p.Start(context.Background(), nic.Config{Pool: pool, RxQueues: 4, TxQueues: 4, RxDesc: 64, TxDesc: 64})
		}
		done = writes < n
		if err == nil && !done {
			p.Housekeep(r.clk.Now())
			err = p.Err()
		}
		if !done && !errors.Is(err, nic.ErrGone) {
			t.Fatalf("removed at write %d: %v, want an error that is ErrGone", n, err)
		}
		r.within(patience)
		if p != nil {
			if err := p.Close(); err != nil && !errors.Is(err, nic.ErrGone) {
				t.Errorf("removed at write %d: close: %v", n, err)
			}
		}
		r.end()
		if t.Failed() {
			t.Fatal(fmt.Sprint("removed at write ", n))
		}
	}
}

func TestFramesThatTheCardMarksAsBadAreDropped(t *testing.T) {
	for _, size := range []int{2048, 1024} {
		r := newRig(t, rigConfig{})
		r.start(nic.Config{Pool: r.pool(mbuf.Config{Size: size})})
		r.cards[1].SetFaults(nic82599.Faults{RxErrors: 5})
		r.send(100, 1500)
		r.settle()
		if n := r.drain(1, 0); n != 80 {
			t.Errorf("%d of 100 frames came, every fifth was marked", n)
		}
		if s := r.ports[1].Stats(); s.RxErrors != 20 || s.Queues[0].RxPackets != 80 {
			t.Errorf("RxErrors %d, queue %d; want 20, 80", s.RxErrors, s.Queues[0].RxPackets)
		}
		r.end()
	}
}
