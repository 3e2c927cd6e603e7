package vhost

import (
	"encoding/binary"
	"fmt"
	"math"
)

// VringState is a number about one queue: its size, its base, whether it is enabled.
type VringState struct{ Index, Num uint32 }

// Append appends the payload.
func (s VringState) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, s.Index)
	return binary.LittleEndian.AppendUint32(b, s.Num)
}

// VringState reads the payload.
func (m Message) VringState() (VringState, error) {
	if err := m.sized(8); err != nil {
		return VringState{}, err
	}
	return VringState{binary.LittleEndian.Uint32(m.Payload), binary.LittleEndian.Uint32(m.Payload[4:])}, nil
}

// Base of a packed ring, in VringState.Num: the position in bits 0 … 14 and the wrap counter in bit 15, for descriptors made
// available; the same in the upper half for descriptors used, which some back ends leave out.
const (
	BasePosition = 0x7fff
	BaseWrap     = 0x8000
)

// VringAddr says where a queue lies, as addresses of the front end's process (Region.UserAddr). Desc, Used and Avail of a packed
// ring are the ring, the device's and the driver's event suppression.
type VringAddr struct {
	Index, Flags           uint32
	Desc, Used, Avail, Log uint64
}

// vringAddrSize is the length of a VringAddr, bytes.
const vringAddrSize = 40

// VringLog in VringAddr.Flags asks for a log of what is written to the used ring.
const VringLog = 1

// Append appends the payload.
func (a VringAddr) Append(b []byte) []byte {
	b = VringState{a.Index, a.Flags}.Append(b)
	for _, v := range []uint64{a.Desc, a.Used, a.Avail, a.Log} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// VringAddr reads the payload.
func (m Message) VringAddr() (VringAddr, error) {
	if err := m.sized(vringAddrSize); err != nil {
		return VringAddr{}, err
	}
	p, u64 := m.Payload, binary.LittleEndian.Uint64
	return VringAddr{
		Index: binary.LittleEndian.Uint32(p), Flags: binary.LittleEndian.Uint32(p[4:]),
		Desc: u64(p[8:]), Used: u64(p[16:]), Avail: u64(p[24:]), Log: u64(p[32:]),
	}, nil
}

// VringFD names the queue that a descriptor is for. NoFD says that none comes with it: the other side is to poll.
type VringFD struct {
	Index uint8
	NoFD  bool
}

const vringNoFD = 1 << 8

// Append appends the payload.
func (v VringFD) Append(b []byte) []byte {
	n := uint64(v.Index)
	if v.NoFD {
		n |= vringNoFD
	}
	return AppendU64(b, n)
}

// VringFD reads the payload and holds it against the number of descriptors that came with the message.
func (m Message) VringFD(fds int) (VringFD, error) {
	n, err := m.U64()
	if err != nil {
		return VringFD{}, err
	}
	v := VringFD{Index: uint8(n), NoFD: n&vringNoFD != 0}
	want := 1
	if v.NoFD {
		want = 0
	}
	switch {
	case n&^(vringNoFD|0xff) != 0:
		return VringFD{}, fmt.Errorf("%w: %v of queue %#x", ErrMessage, m, n)
	case fds != want:
		return VringFD{}, fmt.Errorf("%w: %v of queue %d with %d descriptors, want %d", ErrMessage, m, v.Index, fds, want)
	}
	return v, nil
}

// Region is a piece of the front end's memory: where it lies in bus addresses and in the front end's process, and where it begins
// in the descriptor that comes with it. All in bytes.
type Region struct {
	Addr, Size uint64 // bus ("guest physical") addresses
	UserAddr   uint64
	Offset     uint64
}

// regionSize is the length of a Region, bytes.
const regionSize = 32

func (r Region) append(b []byte) []byte {
	for _, v := range []uint64{r.Addr, r.Size, r.UserAddr, r.Offset} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// parseRegion reads a region that is not empty and none of whose sums wraps.
func parseRegion(p []byte) (Region, error) {
	u64 := binary.LittleEndian.Uint64
	r := Region{Addr: u64(p), Size: u64(p[8:]), UserAddr: u64(p[16:]), Offset: u64(p[24:])}
	if r.Size == 0 || r.Size > math.MaxInt64 || r.Offset > math.MaxInt64-r.Size || r.Addr+r.Size < r.Addr || r.UserAddr+r.Size < r.UserAddr {
		return r, fmt.Errorf("%w: region of %#x bytes at %#x (%#x in the process, from %#x in its file): empty, or it wraps", ErrMessage, r.Size, r.Addr, r.UserAddr, r.Offset)
	}
	return r, nil
}

// Contains says whether n bytes at a bus address lie in the region.
func (r Region) Contains(addr, n uint64) bool {
	return addr >= r.Addr && n <= r.Size && addr-r.Addr <= r.Size-n
}

// ContainsUser says the same of an address in the front end's process.
func (r Region) ContainsUser(addr, n uint64) bool {
	return addr >= r.UserAddr && n <= r.Size && addr-r.UserAddr <= r.Size-n
}

// MemoryTable is all memory that the back end may touch; a descriptor comes with each region, in the same order.
type MemoryTable []Region

// Append appends the payload.
func (t MemoryTable) Append(b []byte) []byte {
	b = VringState{Index: uint32(len(t))}.Append(b) // a count and padding
	for _, r := range t {
		b = r.append(b)
	}
	return b
}

// MemoryTable reads the payload: at most MaxRegions regions, which do not overlap, and as many descriptors.
func (m Message) MemoryTable(fds int) (MemoryTable, error) {
	if len(m.Payload) < 8 {
		return nil, m.sized(8)
	}
	n := binary.LittleEndian.Uint32(m.Payload)
	switch {
	case n > MaxRegions:
		return nil, fmt.Errorf("%w: %v with %d regions, at most %d", ErrMessage, m, n, MaxRegions)
	case int(n) != fds:
		return nil, fmt.Errorf("%w: %v with %d regions and %d descriptors", ErrMessage, m, n, fds)
	}
	// Some send the whole table, whatever is in it.
	if size := 8 + int(n)*regionSize; len(m.Payload) != size && len(m.Payload) != 8+MaxRegions*regionSize {
		return nil, m.sized(size)
	}
	t := make(MemoryTable, n)
	for i := range t {
		r, err := parseRegion(m.Payload[8+i*regionSize:][:regionSize])
		if err != nil {
			return nil, err
		}
		for _, q := range t[:i] {
			if r.overlaps(q) {
				return nil, fmt.Errorf("%w: %v: regions at %#x and %#x overlap", ErrMessage, m, q.Addr, r.Addr)
			}
		}
		t[i] = r
	}
	return t, nil
}

// overlaps is for regions that do not wrap.
func (r Region) overlaps(q Region) bool {
	return r.Addr < q.Addr+q.Size && q.Addr < r.Addr+r.Size ||
		r.UserAddr < q.UserAddr+q.Size && q.UserAddr < r.UserAddr+r.Size
}

// SingleRegion is the payload of ADD_MEM_REG and REM_MEM_REG.
type SingleRegion struct{ Region }

// Append appends the payload.
func (s SingleRegion) Append(b []byte) []byte { return s.append(AppendU64(b, 0)) }

// SingleRegion reads the payload.
func (m Message) SingleRegion() (SingleRegion, error) {
	if err := m.sized(8 + regionSize); err != nil {
		return SingleRegion{}, err
	}
	r, err := parseRegion(m.Payload[8:])
	return SingleRegion{r}, err
}

// Config is a piece of the device's configuration: Data from Offset on, bytes.
type Config struct {
	Offset, Flags uint32
	Data          []byte
}

// configHead is the length of a Config without its data, bytes.
const configHead = 12

// Append appends the payload.
func (c Config) Append(b []byte) []byte {
	b = VringState{c.Offset, uint32(len(c.Data))}.Append(b)
	b = binary.LittleEndian.AppendUint32(b, c.Flags)
	return append(b, c.Data...)
}

// Config reads the payload; Data is a part of it.
func (m Message) Config() (Config, error) {
	if len(m.Payload) < configHead {
		return Config{}, m.sized(configHead)
	}
	c := Config{Offset: binary.LittleEndian.Uint32(m.Payload), Flags: binary.LittleEndian.Uint32(m.Payload[8:])}
	size := binary.LittleEndian.Uint32(m.Payload[4:])
	if size > MaxConfig || c.Offset > MaxConfig-size {
		return Config{}, fmt.Errorf("%w: %v: %d bytes from %d on, of a configuration of at most %d", ErrMessage, m, size, c.Offset, MaxConfig)
	}
	if err := m.sized(configHead + int(size)); err != nil {
		return Config{}, err
	}
	c.Data = m.Payload[configHead:]
	return c, nil
}

// Log is the payload of SET_LOG_BASE, bytes.
type Log struct{ Size, Offset uint64 }

// Log reads the payload.
func (m Message) Log() (Log, error) {
	if err := m.sized(16); err != nil {
		return Log{}, err
	}
	return Log{binary.LittleEndian.Uint64(m.Payload), binary.LittleEndian.Uint64(m.Payload[8:])}, nil
}
