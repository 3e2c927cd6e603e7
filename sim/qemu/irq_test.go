package qemu

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"bare.wire/clock"
	"bare.wire/sim/qemu/qemutest"
)

// newIRQs is the way of interrupts to a QEMU, without any function.
func newIRQs(t *testing.T) (*interrupts, *vtd, *qemutest.TestSocket) {
	t.Helper()
	q := newQtest(clock.Real())
	s := newInterrupts(q, clock.Real(), slog.New(slog.DiscardHandler))
	u := newVTD(q)
	far := qemutest.NewTestSocket()
	ours, theirs := net.Pipe()
	q.connect(ours)
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { _ = far.Serve(theirs) }) // until the pipe is closed
	beside.Go(func() { s.run(ctx, u) })
	t.Cleanup(func() {
		cancel()
		q.close()
		require.NoError(t, theirs.Close())
		beside.Wait()
	})
	return s, u, far
}

func TestInterruptsKeepTheirOrder(t *testing.T) {
	s, _, far := newIRQs(t)
	var want []string
	for i := range 50 {
		s.message(0xFEE00000, uint32(i))
		want = append(want, fmt.Sprintf("writel 0xfee00000 0x%x", i))
	}
	require.Equal(t, want, far.Wait(50, t.Context().Done()))
}

func TestEqualMessagesThatWaitAreOne(t *testing.T) {
	s, _, far := newIRQs(t)
	goOn := far.Stall()
	s.message(0xFEE00000, 99) // is on its way, at most
	for range 1000 {
		s.message(0xFEE00000, 1)
		s.message(0xFEE00000, 2)
	}
	goOn()
	got := far.Wait(3, t.Context().Done())
	s.message(0xFEE00000, 3)
	got = far.Wait(len(got)+1, t.Context().Done())
	require.LessOrEqual(t, len(got), 6)
	require.Equal(t, "writel 0xfee00000 0x3", got[len(got)-1])
	_, dropped := s.counts()
	require.Zero(t, dropped)
}

func TestInterruptsThatHaveNoRoomAreCounted(t *testing.T) {
	s := newInterrupts(newQtest(clock.Real()), clock.Real(), slog.New(slog.DiscardHandler)) // nobody sends
	for i := range maxQueued + 10 {
		s.message(0xFEE00000, uint32(i))
	}
	_, dropped := s.counts()
	require.Equal(t, uint64(10), dropped)
	require.Len(t, s.queue, maxQueued)
}

func TestAPinThatTwoShareIsHighWhileEitherDrivesIt(t *testing.T) {
	s, _, far := newIRQs(t)
	require.Nil(t, s.drive(20, 0, true))
	require.Equal(t, []string{"set_irq_in ioapic unnamed-gpio-in 20 1"}, far.Wait(1, t.Context().Done()))
	require.Nil(t, s.drive(20, 1, true))
	require.Nil(t, s.drive(20, 0, false), "the other still drives it")
	done := s.drive(20, 1, false)
	require.NotNil(t, done)
	s.wait(done)
	require.Equal(t, []string{"set_irq_in ioapic unnamed-gpio-in 20 1", "set_irq_in ioapic unnamed-gpio-in 20 0"}, far.Interrupts())
	require.Nil(t, s.drive(20, 1, false), "nothing new")
}

func TestAPulseThatQEMUHasNotSeenIsNone(t *testing.T) {
	s, _, far := newIRQs(t)
	goOn := far.Stall()
	s.message(0xFEE00000, 1) // keeps the sender busy, so that the pin waits
	s.drive(20, 0, true)
	done := s.drive(20, 0, false)
	goOn()
	s.wait(done)
	s.message(0xFEE00000, 2)
	got := strings.Join(far.Wait(2, t.Context().Done()), "\n")
	require.Equal(t, strings.Count(got, "20 1"), strings.Count(got, "20 0"), got)
}

func TestTheFallOfAPinIsNotWaitedForForEver(t *testing.T) {
	s, _, far := newIRQs(t)
	s.drive(20, 0, true)
	far.Wait(1, t.Context().Done())
	goOn := far.Stall()
	defer goOn()
	s.wait(s.drive(20, 0, false))
	require.Len(t, far.Interrupts(), 1, "QEMU has answered nothing, and the guest's access goes on")
}

func TestARemappedMessageGoesThroughTheTableAsItIsNow(t *testing.T) {
	s, u, far := newIRQs(t)
	table := map[uint64]uint64{0x9000 + 16*2: 1 | 0x55<<16}
	load := loader(func(gpa uint64) (uint64, bool) { return table[gpa], true })
	u.load.Store(&load)
	// What is known of the unit is old: the guest has switched remapping on since.
	far.SetRegister(vtdGSTS, gstsIRES)
	far.SetRegister(vtdIRTA, 0x9003)
	s.message(0xFEE00010|2<<5, 0)
	require.Equal(t, []string{"writel 0xfee00000 0x55"}, far.Wait(1, t.Context().Done()))
	s.message(0xFEE00010|3<<5, 0) // not present: lost, and told
	s.message(0xFEE00000, 7)
	require.Equal(t, "writel 0xfee00000 0x7", far.Wait(2, t.Context().Done())[1])
}

func TestAnswersOfTheTestSocketAreChecked(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{"FAIL unknown\n", `answer "FAIL unknown\n"`},
		{"OK zero\n", `answer "zero"`},
		{"OK 0x100000000\n", `answer "0x100000000"`},
		{"\n", "answer"},
		{strings.Repeat("x", maxLine+1), "buffer full"},
		{"OK 0x1", "EOF"},
	} {
		q := newQtest(clock.Real())
		ours, theirs := net.Pipe()
		q.connect(ours)
		var beside sync.WaitGroup
		beside.Go(func() {
			b := make([]byte, 256)
			_, _ = theirs.Read(b)
			_, _ = theirs.Write([]byte("IRQ raise 3\n" + c.answer))
			_ = theirs.Close()
		})
		_, err := q.readl(0x1000)
		require.ErrorContains(t, err, c.want)
		q.close()
		beside.Wait()
	}
	_, err := newQtest(clock.Real()).readl(0)
	require.ErrorIs(t, err, errNotConnected)
}

func TestBeforeQEMUIsThereNothingIsTranslated(t *testing.T) {
	u := newVTD(newQtest(clock.Real()))
	s, err := u.refresh()
	require.NoError(t, err)
	require.Equal(t, vtdState{}, s)
}
