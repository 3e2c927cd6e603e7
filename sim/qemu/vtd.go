package qemu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Registers of QEMU's VT-d unit (VT-d §11.4; QEMU puts the unit where chipsets have it).
const (
	vtdBase     = 0xFED90000
	vtdGSTS     = vtdBase + 0x1C
	vtdRTADDR   = vtdBase + 0x20
	vtdIRTA     = vtdBase + 0xB8
	gstsTES     = 1 << 31 // translation is on
	gstsIRES    = 1 << 25 // interrupt remapping is on
	tableAddr   = 0x000F_FFFF_FFFF_F000
	entryRead   = 1 << 0
	entryWrite  = 1 << 1
	entryLarge  = 1 << 7
	typePass    = 2 // context entry: untranslated
	pageShift   = 12
	levelShift  = 9
	irtaX2APIC  = 1 << 11
	msiRemapped = 1 << 4 // in a message's address: remappable format
	msiSubValid = 1 << 3 // … the low half of the data counts
)

// atomicLoad64 reads the aligned word at the start of b, 8 bytes or more, in one piece.
func atomicLoad64(b []byte) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))))
}

// DMAFault is an access to memory that the IOMMU, or the lack of RAM, forbids.
type DMAFault struct {
	Requester uint16 // bus<<8 | device<<3 | function
	Bus       uint64 // address as the card gave it
	Write     bool
	Level     int // of the table entry that ended the walk; 0: none did
	Reason    string
}

func (f *DMAFault) Error() string {
	what := "read"
	if f.Write {
		what = "write"
	}
	where := ""
	if f.Level > 0 {
		where = fmt.Sprintf(" at level %d", f.Level)
	}
	return fmt.Sprintf("DMA fault: %s by %02x:%02x.%x at iova %#x%s: %s", what, f.Requester>>8, f.Requester>>3&31, f.Requester&7, f.Bus, where, f.Reason)
}

// vtdState is what the unit's registers say.
type vtdState struct {
	on    bool
	root  uint64 // RTADDR
	remap bool
	irta  uint64
}

// loader reads a word of guest-physical memory.
type loader func(gpa uint64) (v uint64, ok bool)

// walk translates a bus address. It returns the guest-physical address and how many bytes from it on are valid.
func (s *vtdState) walk(load loader, requester uint16, iova uint64, write bool) (gpa, n uint64, err error) {
	if !s.on {
		return iova, 1 << 30, nil
	}
	fault := func(level int, format string, args ...any) (uint64, uint64, error) {
		return 0, 0, &DMAFault{requester, iova, write, level, fmt.Sprintf(format, args...)}
	}
	if mode := s.root >> 10 & 3; mode != 0 {
		return fault(0, "the root table is not in legacy mode (RTADDR %#x), which is all that is understood", s.root)
	}
	root, ok := load(s.root&tableAddr + uint64(requester>>8)*16)
	if !ok || root&1 == 0 {
		return fault(0, "no root entry for bus %d", requester>>8)
	}
	at := root&tableAddr + uint64(requester&0xFF)*16
	lo, ok1 := load(at)
	hi, ok2 := load(at + 8)
	if !ok1 || !ok2 || lo&1 == 0 {
		return fault(0, "no context entry: the guest has given this function no address space")
	}
	if lo>>2&3 == typePass {
		return iova, 1 << 30, nil
	}
	levels := int(hi&7) + 2
	if levels < 3 || levels > 5 {
		return fault(0, "context entry with address width %d", hi&7)
	}
	if iova>>(pageShift+levelShift*levels) != 0 {
		return fault(levels, "beyond the %d bits of the address space", pageShift+levelShift*levels)
	}
	return secondLevel(load, lo&tableAddr, levels, iova, write, fault)
}

// secondLevel walks the tables of an address space (VT-d §3.7.2).
func secondLevel(load loader, table uint64, levels int, iova uint64, write bool,
	fault func(level int, format string, args ...any) (uint64, uint64, error),
) (gpa, n uint64, err error) {
	need, name := uint64(entryRead), "reading"
	if write {
		need, name = entryWrite, "writing"
	}
	for level := levels; level >= 1; level-- {
		shift := pageShift + levelShift*(level-1)
		entry, ok := load(table + iova>>shift&(1<<levelShift-1)*8)
		switch {
		case !ok:
			return fault(level, "the table at %#x is not in RAM", table)
		case entry&(entryRead|entryWrite) == 0:
			return fault(level, "not mapped")
		case entry&need == 0:
			return fault(level, "not mapped for %s (entry %#x)", name, entry)
		}
		if level == 1 || entry&entryLarge != 0 {
			if level > 3 {
				return fault(level, "a page larger than 1 GiB (entry %#x)", entry)
			}
			size := uint64(1) << shift
			return entry&tableAddr&^(size-1) | iova&(size-1), size - iova&(size-1), nil
		}
		table = entry & tableAddr
	}
	return fault(1, "no page") // not reached: level 1 always is one
}

// remap turns a message in remappable format into one that an APIC understands (VT-d §5.1.2, §5.1.5, §9.10).
func (s *vtdState) remapMessage(load loader, addr uint64, data uint32) (uint64, uint32, error) {
	index := uint32(addr>>5)&0x7FFF | uint32(addr>>2&1)<<15
	if addr&msiSubValid != 0 {
		index += data & 0xFFFF
	}
	if uint64(index) >= 2<<(s.irta&0xF) {
		return 0, 0, fmt.Errorf("interrupt %d is beyond the remapping table of %d", index, 2<<(s.irta&0xF))
	}
	entry, ok := load(s.irta&tableAddr + uint64(index)*16)
	if !ok || entry&1 == 0 {
		return 0, 0, fmt.Errorf("interrupt %d: entry %#x of the remapping table is not present", index, entry)
	}
	dest := entry >> 40 & 0xFF
	if s.irta&irtaX2APIC != 0 {
		dest = entry >> 32 & 0xFF // as much of it as a message can carry
	}
	addr = 0xFEE00000 | dest<<12 | entry>>3&1<<3 | entry>>2&1<<2
	data = uint32(entry>>16&0xFF) | uint32(entry>>5&7)<<8 | uint32(entry>>4&1)<<15
	return addr, data, nil
}

// vtd follows the unit's registers.
type vtd struct {
	test  *qtest
	mu    sync.Mutex // one refresh at a time
	state atomic.Pointer[vtdState]
	load  atomic.Pointer[loader] // any function's view of RAM, for the interrupt remapping table
}

func newVTD(test *qtest) *vtd {
	u := &vtd{test: test}
	u.state.Store(&vtdState{})
	nothing := loader(func(uint64) (uint64, bool) { return 0, false })
	u.load.Store(&nothing)
	return u
}

func (u *vtd) now() *vtdState { return u.state.Load() }

// refresh reads the registers. It waits for QEMU's main loop: the caller must hold nothing that a reset of the machine needs.
func (u *vtd) refresh() (vtdState, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, err := u.read()
	if errors.Is(err, errNotConnected) {
		err = nil // so early nobody has switched anything on
	}
	if err == nil {
		u.state.Store(&s)
	}
	return s, err
}

func (u *vtd) read() (s vtdState, err error) {
	status, err := u.test.readl(vtdGSTS)
	if err != nil || status == 0xFFFFFFFF || status == 0 { // no unit, or nothing on
		return s, err
	}
	s.on, s.remap = status&gstsTES != 0, status&gstsIRES != 0
	if s.on {
		s.root, err = u.test.readq(vtdRTADDR)
	}
	if err == nil && s.remap {
		s.irta, err = u.test.readq(vtdIRTA)
	}
	return s, err
}

// remap turns a message in remappable format into one that QEMU takes. It waits for QEMU's main loop, as refresh does.
func (u *vtd) remap(addr uint64, data uint32) (uint64, uint32, error) {
	load := *u.load.Load()
	s := u.now()
	a, d, err := s.remapMessage(load, addr, data)
	if err == nil {
		return a, d, nil
	}
	fresh, rerr := u.refresh() // the table may have moved since
	if rerr != nil || fresh == *s {
		return 0, 0, err
	}
	return fresh.remapMessage(load, addr, data)
}
