//go:build guest

package dpdk

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/testpmd"
)

// TestGuestTwoPorts cables two cards to each other: what testpmd sends once it forwards from one to the other until it is stopped.
func TestGuestTwoPorts(t *testing.T) {
	guest.Run(t, machine(t, "pair"), func(t *testing.T) {
		b := start(t, 2)
		for _, engine := range []string{"io", "mac"} {
			t.Run(engine, func(t *testing.T) {
				if err := checkRound(b, engine, times(10_000, 100_000)); err != nil {
					t.Error(err)
				}
			})
		}
		for card := range cards {
			t.Run(fmt.Sprintf("no misuse of card %d", card), func(t *testing.T) { noMisuse(t, b, card) })
		}
	})
}

// wireCounts are the frames of the wire in each direction; a is the first card.
type wireCounts struct {
	AB struct{ Frames, Delivered uint64 } `json:"a_to_b"`
	BA struct{ Frames, Delivered uint64 } `json:"b_to_a"`
}

// checkRound sends frames round until at least n have passed the wire, and compares the counts of testpmd, cards and wire.
func checkRound(b *bench, engine string, n int) error {
	var before, after wireCounts
	cardsBefore, err := b.both()
	if err := errors.Join(err, b.control(&before, `{"do":"wire"}`)); err != nil {
		return err
	}
	if _, err := b.do("clear port stats all", "set fwd "+engine, "start tx_first 8"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for after.AB.Frames-before.AB.Frames < uint64(n) {
		if err := errors.Join(b.control(&after, `{"do":"wire"}`), ctx.Err()); err != nil {
			return fmt.Errorf("%d of %d frames have passed: %w", after.AB.Frames-before.AB.Frames, n, err)
		}
	}
	text, err := b.do("stop")
	if err != nil {
		return err
	}
	forwarded, err := testpmd.ParseForward(text)
	if err != nil {
		return err
	}
	if after, err = b.quietWire(); err != nil {
		return err
	}
	cardsAfter, err := b.both()
	if err != nil {
		return err
	}
	return b.compare(before, after, cardsBefore, cardsAfter, forwarded)
}

// quietWire waits until what was sent has arrived and nothing more comes, and returns the wire's counts. What never arrives is
// for compare to find.
func (b *bench) quietWire() (now wireCounts, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.patience)
	defer cancel()
	for last := (wireCounts{}); ; last = now {
		if err := b.control(&now, `{"do":"wire"}`); err != nil {
			return now, err
		}
		arrived := now.AB.Delivered == now.AB.Frames && now.BA.Delivered == now.BA.Frames
		if arrived && now == last || ctx.Err() != nil {
			return now, nil
		}
	}
}

// both are the counts of the two cards.
func (b *bench) both() (c [2]cardCounts, err error) {
	for i := range c {
		if c[i], err = b.cardCounts(i); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (b *bench) compare(before, after wireCounts, cardsBefore, cardsAfter [2]cardCounts, forwarded map[int]testpmd.Forward) error {
	var faults []error
	same := func(what string, got, want uint64) {
		if got != want {
			faults = append(faults, fmt.Errorf("%s: %d, want %d", what, got, want))
		}
	}
	wire := [2]uint64{after.AB.Frames - before.AB.Frames, after.BA.Frames - before.BA.Frames} // sent by each
	same("lost by the wire, a to b", after.AB.Delivered-before.AB.Delivered, wire[0])
	same("lost by the wire, b to a", after.BA.Delivered-before.BA.Delivered, wire[1])
	for i := range wire {
		s, err := b.stats(i)
		if err != nil {
			return err
		}
		same(fmt.Sprintf("testpmd: sent by port %d", i), s.TxPackets, wire[i])
		same(fmt.Sprintf("testpmd: received by port %d", i), s.RxPackets, wire[1-i])
		same(fmt.Sprintf("card %d: sent", i), cardsAfter[i].TxFrames-cardsBefore[i].TxFrames, wire[i])
		same(fmt.Sprintf("card %d: received", i), cardsAfter[i].RxFrames-cardsBefore[i].RxFrames, wire[1-i])
		same(fmt.Sprintf("testpmd: dropped by port %d", i), forwarded[i].RxDropped+forwarded[i].TxDropped+s.RxErrors+s.TxErrors, 0)
		if forwarded[i].TxPackets == 0 {
			faults = append(faults, fmt.Errorf("testpmd has forwarded nothing to port %d", i))
		}
	}
	return errors.Join(faults...)
}
