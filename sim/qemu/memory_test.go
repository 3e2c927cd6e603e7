package qemu

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/sim"
)

// guest is RAM with VT-d tables in it.
type guest struct {
	m   *Memory
	ram []byte
	u   *vtd
}

const (
	rootTable    = 0x1000
	contextTable = 0x2000
	requester    = 0x04 << 3
)

func newGuest(t *testing.T) *guest {
	t.Helper()
	f := &files{}
	t.Cleanup(func() { require.NoError(t, f.close()) })
	fd, ram := memory(t, ramSize)
	g := &guest{u: newVTD(newQtest(clock.Real())), ram: ram}
	g.m = &Memory{unit: g.u, requester: requester, clk: clock.Real()}
	g.m.ram.files = f
	require.NoError(t, g.m.ram.sync([]section{{size: ramSize}}, []int{fd}))
	return g
}

func (g *guest) put(gpa, v uint64) { binary.LittleEndian.PutUint64(g.ram[gpa:], v) }

// translate switches translation on, with the second-level tables of width levels at 0x3000.
func (g *guest) translate(levels int, kind uint64) {
	g.u.state.Store(&vtdState{on: true, root: rootTable})
	g.put(rootTable, contextTable|1)
	g.put(contextTable+requester*16, 0x3000|kind<<2|1)
	g.put(contextTable+requester*16+8, uint64(levels-2))
}

// chain links tables at 0x3000, 0x4000, … for iova down to level last, and puts leaf there.
func (g *guest) chain(levels, last int, iova, leaf uint64) {
	table := uint64(0x3000)
	for level := levels; level > last; level-- {
		g.put(table+iova>>(12+9*(level-1))&0x1FF*8, (table+0x1000)|3)
		table += 0x1000
	}
	g.put(table+iova>>(12+9*(last-1))&0x1FF*8, leaf)
}

func (g *guest) bytes(t *testing.T, bus uint64, n int, write bool) []byte {
	t.Helper()
	b, err := g.m.bytes(bus, n, write)
	require.NoError(t, err)
	return b
}

func (g *guest) fault(t *testing.T, bus uint64, write bool) *DMAFault {
	t.Helper()
	_, err := g.m.bytes(bus, 16, write)
	var f *DMAFault
	require.True(t, errors.As(err, &f), "%v", err)
	return f
}

func TestWithoutTranslationABusAddressIsPhysical(t *testing.T) {
	g := newGuest(t)
	copy(g.ram[0x5000:], "hello")
	require.Equal(t, "hello", string(g.bytes(t, 0x5000, 5, false)))
	require.Len(t, g.bytes(t, ramSize-4, 16, true), 4, "up to the end of RAM")
	require.Equal(t, "the guest has no RAM there", g.fault(t, ramSize, true).Reason)
	require.Equal(t, "the guest has no RAM there", g.fault(t, ^uint64(0)-4, true).Reason)
}

func TestTablesAreWalked(t *testing.T) {
	for _, c := range []struct {
		name         string
		levels, last int
		iova, leaf   uint64
		gpa          uint64
		n            int // bytes that lie together
	}{
		{"three levels", 3, 1, 0x4000_0000, 0x20_0000 | 3, 0x20_0000, 0x1000},
		{"four levels", 4, 1, 0x12_3456_7000, 0x20_0000 | 3, 0x20_0000, 0x1000},
		{"inside a page", 3, 1, 0x4000_0123, 0x20_0000 | 3, 0x20_0123, 0x1000 - 0x123},
		{"2 MiB", 3, 2, 0x4000_5678, 0x20_0000 | 0x83, 0x20_5678, 0x20_0000 - 0x5678},
		{"1 GiB", 3, 3, 0x4030_5678, 0x83, 0x30_5678, ramSize - 0x30_5678},
		{"high bits that are no address", 3, 1, 0x4000_0000, 0x20_0000 | 3 | 1<<62 | 0xF<<52 | 0x7F<<4&^0x80, 0x20_0000, 0x1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuest(t)
			g.translate(c.levels, 0)
			g.chain(c.levels, c.last, c.iova, c.leaf)
			for _, write := range []bool{false, true} {
				b := g.bytes(t, c.iova, ramSize, write)
				require.Len(t, b, c.n)
				b[0] ^= 0x55
				require.Equal(t, b[0], g.ram[c.gpa])
			}
		})
	}
}

func TestPassThroughGoesPastTheTables(t *testing.T) {
	g := newGuest(t)
	g.translate(4, typePass)
	g.bytes(t, 0x5000, 16, true)
}

func TestPagesThatFollowEachOtherAreOnePiece(t *testing.T) {
	g := newGuest(t)
	g.translate(3, 0)
	g.chain(3, 1, 0x4000_0000, 0x20_0000|3)
	g.put(0x5000+8, 0x20_1000|3) // the next
	g.put(0x5000+16, 0x30_0000|3)
	require.Len(t, g.bytes(t, 0x4000_0800, 0x3000, false), 0x1800, "two pages, then somewhere else")
	require.Len(t, g.bytes(t, 0x4000_0800, 0x900, false), 0x900)
	require.Len(t, g.bytes(t, 0x4000_2000, 0x2000, false), 0x1000, "nothing behind the third: the rest is asked for by itself")
}

func TestWhatIsNotMappedFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *guest)
		bus    uint64
		write  bool
		level  int
		want   string
	}{
		{"not mapped", func(*guest) {}, 0x4000_1000, false, 1, "not mapped"},
		{"no table", func(*guest) {}, 0x4020_0000, false, 2, "not mapped"},
		{"read-only", func(g *guest) { g.put(0x5000, 0x20_0000|1) }, 0x4000_0000, true, 1, "not mapped for writing"},
		{"write-only", func(g *guest) { g.put(0x5000, 0x20_0000|2) }, 0x4000_0000, false, 1, "not mapped for reading"},
		{"read-only above", func(g *guest) { g.put(0x3000+8, 0x4000|1) }, 0x4000_0000, true, 3, "not mapped for writing"},
		{"too far", func(*guest) {}, 1 << 39, false, 3, "beyond the 39 bits"},
		{"no context", func(g *guest) { g.put(contextTable+requester*16, 0) }, 0x4000_0000, false, 0, "no context entry"},
		{"no root", func(g *guest) { g.put(rootTable, 0) }, 0x4000_0000, false, 0, "no root entry for bus 0"},
		{"odd width", func(g *guest) { g.put(contextTable+requester*16+8, 7) }, 0x4000_0000, false, 0, "address width 7"},
		{"scalable mode", func(g *guest) { g.u.state.Store(&vtdState{on: true, root: rootTable | 1<<10}) }, 0x4000_0000, false, 0, "not in legacy mode"},
		{"table outside", func(g *guest) { g.put(0x3000+8, 0x7000_0000|3) }, 0x4000_0000, false, 2, "the table at 0x70000000 is not in RAM"},
		{"page outside", func(g *guest) { g.put(0x5000, 0x7000_0000|3) }, 0x4000_0000, false, 0, "mapped to where the guest has no RAM"},
		{"unmapped since", func(g *guest) { g.put(0x5000, 0) }, 0x4000_0000, true, 1, "not mapped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuest(t)
			g.translate(3, 0)
			g.chain(3, 1, 0x4000_0000, 0x20_0000|3)
			g.bytes(t, 0x4000_0000, 16, c.write)
			c.change(g)
			f := g.fault(t, c.bus, c.write)
			require.Contains(t, f.Reason, c.want)
			require.Equal(t, c.level, f.Level)
			require.Contains(t, f.Error(), "by 00:04.0 at iova")
			n := g.m.Counts()
			require.Equal(t, uint64(1), n.Faults)
			require.Equal(t, f, n.LastFault)
			require.Equal(t, uint64(1), n.Reads+n.Writes)
			require.Equal(t, uint64(0x4000_0000), n.LastBus)
		})
	}
}

func TestReadsAndWritesAreToldApart(t *testing.T) {
	g := newGuest(t)
	g.translate(3, 0)
	g.chain(3, 1, 0x4000_0000, 0x20_0000|1)
	g.put(0x5000+8, 0x21_0000|2)
	g.put(0x5000+16, 0x22_0000|3)
	for _, c := range []struct {
		name string
		m    sim.Memory
		ok   [3]bool // read-only, write-only, both
	}{
		{"reads", g.m.ForReads(), [3]bool{true, false, true}},
		{"writes", g.m.ForWrites(), [3]bool{false, true, true}},
		{"rings", g.m, [3]bool{false, false, true}},
	} {
		for page, ok := range c.ok {
			_, err := c.m.Bytes(0x4000_0000+uint64(page)<<12, 16)
			require.Equal(t, ok, err == nil, "%s, page %d: %v", c.name, page, err)
		}
	}
}

func TestARemappedInterruptIsLookedUp(t *testing.T) {
	g := newGuest(t)
	const table = 0x8000
	irta := uint64(table | 7)                                      // 256 entries
	g.put(table+16*5, 1|1<<2|1<<4|1<<5|0x41<<16|0x03<<40|0x99<<32) // logical, level, lowest priority, vector 0x41
	g.put(table+16*6, 1|0x42<<16|0x05<<32)
	for _, c := range []struct {
		name string
		irta uint64
		addr uint64
		data uint32
		to   uint64
		out  uint32
		err  string
	}{
		{"by handle", irta, 0xFEE00010 | 5<<5, 0, 0xFEE03004, 0x8141, ""},
		{"with a sub-handle", irta, 0xFEE00018 | 4<<5, 1, 0xFEE03004, 0x8141, ""},
		{"x2APIC", irta | irtaX2APIC, 0xFEE00010 | 6<<5, 0, 0xFEE05000, 0x42, ""},
		{"not present", irta, 0xFEE00010 | 7<<5, 0, 0, 0, "not present"},
		{"beyond the table", irta, 0xFEE00010 | 256<<5, 0, 0, 0, "beyond the remapping table of 256"},
		{"high bit of the handle", irta, 0xFEE00014, 0, 0, 0, "interrupt 32768 is beyond"},
		{"no RAM", 0x7000_0007, 0xFEE00010, 0, 0, 0, "not present"},
	} {
		s := vtdState{remap: true, irta: c.irta}
		to, out, err := s.remapMessage(g.m.ram.load64, c.addr, c.data)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, [2]uint64{c.to, uint64(c.out)}, [2]uint64{to, uint64(out)}, c.name)
	}
}

func TestAMapThatIsReplacedLeavesWhatIsInUse(t *testing.T) {
	g := newGuest(t)
	b := g.bytes(t, 0x5000, 16, true)
	fd, other := memory(t, ramSize)
	require.NoError(t, g.m.ram.sync([]section{{gpa: 0, size: ramSize / 2, off: ramSize / 2}}, []int{fd}))
	b[0] = 1 // would be a crash if it had been unmapped
	require.Equal(t, byte(1), g.ram[0x5000])
	g.bytes(t, 0x5000, 16, true)[0] = 2
	require.Equal(t, byte(2), other[ramSize/2+0x5000], "the new map")
	require.NoError(t, g.m.ram.sync(nil, nil))
	g.fault(t, 0x5000, true)
}

func TestOneFileIsMappedOnce(t *testing.T) {
	f := &files{}
	defer func() { require.NoError(t, f.close()) }()
	fd, _ := memory(t, ramSize)
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(again)
	a, err := f.open(fd)
	require.NoError(t, err)
	b, err := f.open(again)
	require.NoError(t, err)
	require.Same(t, &a[0], &b[0])
	require.Len(t, f.list, 1)
}

func TestOnlyFilesAreMapped(t *testing.T) {
	f := &files{}
	ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(ev)
	_, err = f.open(ev)
	require.ErrorContains(t, err, "want a memfd or a file")
	empty, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(empty)
	_, err = f.open(empty)
	require.ErrorContains(t, err, "size 0")
	_, err = f.open(-1)
	require.ErrorIs(t, err, unix.EBADF)
	for range maxFiles {
		fd, _ := memory(t, 4096)
		_, err := f.open(fd)
		require.NoError(t, err)
	}
	fd, _ := memory(t, 4096)
	_, err = f.open(fd)
	require.ErrorContains(t, err, "more than 16 files")
	require.NoError(t, f.close())
}

// FuzzWalk walks tables of any contents: whatever the guest has written there, an answer lies in what it may.
func FuzzWalk(f *testing.F) {
	f.Add(uint64(0x4000_0000), uint64(3), uint64(0x20_0003), true)
	f.Add(^uint64(0), ^uint64(0), ^uint64(0), false)
	f.Fuzz(func(t *testing.T, iova, hi, entry uint64, write bool) {
		s := vtdState{on: true, root: rootTable}
		steps := 0
		_, n, err := s.walk(func(gpa uint64) (uint64, bool) {
			steps++
			if gpa%8 != 0 || gpa >= 1<<52 {
				t.Fatalf("a table entry at %#x", gpa)
			}
			if steps == 3 {
				return hi, true
			}
			return entry | 1, true
		}, requester, iova, write)
		if steps > 8 {
			t.Fatalf("%d steps", steps)
		}
		if err == nil && (n == 0 || n > 1<<30) {
			t.Fatalf("%d bytes", n)
		}
	})
}
