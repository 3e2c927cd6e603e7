package nic82599

import (
	"strings"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

func TestFrameCrossesBetweenTwoCards(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.start()
	f := frameTo(macB, 100, 7)
	if !r.a.send(0, f, 0, true) {
		t.Fatal("ring full")
	}
	r.b.expect(0, f)
	r.run(200 * time.Microsecond)
	r.a.reclaim(0)
	if r.a.tx[0].busy != 0 {
		t.Error("the descriptor did not come back")
	}
	r.clean()
}

func TestDMALogKeepsTheLatest(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.start()
	r.b.card.EnableDMALog(5)
	for i := range 20 {
		f := frameTo(macB, 60, byte(i))
		r.a.send(0, f, 0, true)
		r.b.expect(0, f)
	}
	log := r.b.card.DMALog()
	if len(log) != 5 {
		t.Fatalf("%d entries, want 5", len(log))
	}
	for i := range log {
		if i > 0 && log[i].At < log[i-1].At {
			t.Errorf("entry %d is older than the one before it", i)
		}
	}
	last := log[4]
	if last.Kind != ReportRx || last.Len != 16 {
		t.Errorf("the last entry is %+v", last)
	}
}

func TestDataLiesWhereTheLogSaysItWasWritten(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.start()
	r.b.card.EnableDMALog(0)
	r.a.send(0, frameTo(macB, 200, 1), 0, true)
	r.run(20 * time.Microsecond)
	for _, e := range r.b.card.DMALog() {
		if e.Kind == WriteData {
			if e.Bus != r.b.rx[0].bus[0] || e.Len != 200 || e.Queue != 0 {
				t.Errorf("%+v, want 200 bytes at %#x", e, r.b.rx[0].bus[0])
			}
			return
		}
	}
	t.Error("no data written")
}

func TestMisuseIsKeptOncePerKindAndQueueAndCounted(t *testing.T) {
	r := newRig(t, 1, miniOptions{queues: 2, key: microsoftKey}, nil)
	r.start()
	for range 3 {
		r.a.wr(reg.TDT(0), 64)
	}
	r.a.wr(reg.TDT(1), 77)
	list := r.a.card.Misuse()
	if len(list) != 2 || list[0].Count != 3 || list[1].Queue != 1 {
		t.Fatalf("%v", list)
	}
	for _, want := range []string{"TailBeyondRing", "queue 0", "TDT(0) = 64", "§", "3 times"} {
		if s := list[0].String(); !strings.Contains(s, want) {
			t.Errorf("%q does not say %q", s, want)
		}
	}
	r.a.card.ForgetMisuse()
	r.clean()
}

func TestClosedCardLeavesTheWire(t *testing.T) {
	r := newRig(t, 1, miniOptions{}, nil)
	r.start()
	if err := r.b.card.Close(); err != nil {
		t.Fatal(err)
	}
	r.a.rd(reg.LINKS)
	if r.a.rd(reg.LINKS)&reg.LINKS_UP != 0 {
		t.Error("the other side still has a link")
	}
	r.a.card.Remove()
	if v, d := r.a.card.ID(); v != 0x8086 || d != 0x10FB || r.a.card.Name() != "a" || r.a.card.Size() != reg.BARSize {
		t.Errorf("%s: id %04x:%04x, size %#x", r.a.card.Name(), v, d, r.a.card.Size())
	}
	if r.a.rd(reg.STATUS) != 0xFFFFFFFF {
		t.Error("a removed card answers")
	}
}

func TestConfigurationSpace(t *testing.T) {
	c := newRig(t, 1, miniOptions{}, nil).a.card
	if v, err := c.ReadConfig(0, 4); err != nil || v != 0x10FB8086 {
		t.Errorf("id %08X, %v", v, err)
	}
	// Sizing BAR 0: 128 KiB, 64 bits.
	if err := c.WriteConfig(cfgBAR0, 4, 0xFFFFFFFF); err != nil {
		t.Fatal(err)
	}
	if v, _ := c.ReadConfig(cfgBAR0, 4); v != 0xFFFE0004 {
		t.Errorf("BAR 0 is %08X after all ones, want FFFE0004", v)
	}
	if err := c.WriteConfig(0, 4, 0); err != nil {
		t.Error(err)
	}
	if v, _ := c.ReadConfig(0, 2); v != 0x8086 {
		t.Error("the vendor id can be overwritten")
	}
	for _, bad := range [][2]int{{0, 3}, {1, 2}, {256, 1}, {-4, 4}, {254, 4}} {
		if _, err := c.ReadConfig(bad[0], bad[1]); err == nil {
			t.Errorf("read of %d bytes at %d is accepted", bad[1], bad[0])
		}
		if c.WriteConfig(bad[0], bad[1], 0) == nil {
			t.Errorf("write of %d bytes at %d is accepted", bad[1], bad[0])
		}
	}
}
