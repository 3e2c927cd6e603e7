package vhost

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"bare.wire/virtio/spec"
)

// with is a message with this payload.
func with(p []byte) Message { return NewMessage(GetFeatures, p) }

// region is one that nothing is wrong with.
var region = Region{Addr: 4 << 30, Size: 2 << 20, UserAddr: 0x7f00_0000_0000, Offset: 4096}

func TestPayloadsAreReadAsTheyWereWritten(t *testing.T) {
	state := VringState{7, 256}
	gotState, err := with(state.Append(nil)).VringState()
	require.NoError(t, err)
	assert.Equal(t, state, gotState)

	addr := VringAddr{Index: 3, Flags: VringLog, Desc: 1 << 40, Used: 2 << 40, Avail: 3 << 40, Log: 4}
	gotAddr, err := with(addr.Append(nil)).VringAddr()
	require.NoError(t, err)
	assert.Equal(t, addr, gotAddr)

	next := region
	next.Addr += region.Size
	next.UserAddr -= region.Size
	for _, table := range []MemoryTable{{}, {region}, {region, next}} {
		got, err := with(table.Append(nil)).MemoryTable(len(table))
		require.NoError(t, err)
		assert.Equal(t, table, got)
	}
	whole := append(MemoryTable{region}.Append(nil), make([]byte, 7*regionSize)...)
	got, err := with(whole).MemoryTable(1)
	require.NoError(t, err, "a table that is sent whole")
	assert.Equal(t, MemoryTable{region}, got)

	single, err := with(SingleRegion{region}.Append(nil)).SingleRegion()
	require.NoError(t, err)
	assert.Equal(t, region, single.Region)

	config := Config{Offset: 6, Flags: 1, Data: []byte{1, 2}}
	gotConfig, err := with(config.Append(nil)).Config()
	require.NoError(t, err)
	assert.Equal(t, config, gotConfig)

	for _, v := range []VringFD{{0, false}, {255, true}} {
		fds := 1
		if v.NoFD {
			fds = 0
		}
		got, err := with(v.Append(nil)).VringFD(fds)
		require.NoError(t, err)
		assert.Equal(t, v, got)
		_, err = with(v.Append(nil)).VringFD(1 - fds)
		require.ErrorIs(t, err, ErrMessage, "the wrong number of descriptors")
	}
	log, err := with(AppendU64(AppendU64(nil, 1<<20), 4096)).Log()
	require.NoError(t, err)
	assert.Equal(t, Log{Size: 1 << 20, Offset: 4096}, log)
}

// TestLayouts holds the bytes against the tables of the specification.
func TestLayouts(t *testing.T) {
	m := NewMessage(SetVringNum, VringState{Index: 0x01020304, Num: 0x05060708}.Append(nil))
	assert.Equal(t, []byte{8, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5}, m.Append(nil))
	assert.Len(t, VringAddr{}.Append(nil), 40)
	table := MemoryTable{region}.Append(nil)
	require.Len(t, table, 8+32)
	for i, want := range []uint64{1, region.Addr, region.Size, region.UserAddr, region.Offset} {
		assert.Equal(t, want, binary.LittleEndian.Uint64(table[8*i:]))
	}
	assert.Len(t, SingleRegion{}.Append(nil), 40)
	assert.Len(t, Config{Data: make([]byte, 3)}.Append(nil), 15)
	assert.EqualValues(t, 5, m.Reply(nil).Flags)
	m.Flags |= FlagNeedReply
	assert.True(t, m.NeedReply())
}

func TestPayloadsOfTheWrongLength(t *testing.T) {
	for _, r := range []struct {
		name  string
		size  int
		parse func(Message) error
	}{
		{"u64", 8, func(m Message) error { _, err := m.U64(); return err }},
		{"state", 8, func(m Message) error { _, err := m.VringState(); return err }},
		{"address", 40, func(m Message) error { _, err := m.VringAddr(); return err }},
		{"table", 8, func(m Message) error { _, err := m.MemoryTable(0); return err }},
		{"region", 40, func(m Message) error { _, err := m.SingleRegion(); return err }},
		{"config", 12, func(m Message) error { _, err := m.Config(); return err }},
		{"log", 16, func(m Message) error { _, err := m.Log(); return err }},
		{"descriptor", 8, func(m Message) error { _, err := m.VringFD(1); return err }},
	} {
		for _, n := range []int{0, r.size - 1, r.size + 1} {
			assert.ErrorIs(t, r.parse(with(make([]byte, n))), ErrMessage, "%s of %d bytes", r.name, n)
		}
	}
}

func TestRegionsThatCannotBe(t *testing.T) {
	change := func(f func(*Region)) Region { r := region; f(&r); return r }
	for name, r := range map[string]Region{
		"empty":                change(func(r *Region) { r.Size = 0 }),
		"wraps on the bus":     change(func(r *Region) { r.Addr = math.MaxUint64 - r.Size + 1 }),
		"wraps in memory":      change(func(r *Region) { r.UserAddr = math.MaxUint64 - 5 }),
		"wraps in the file":    change(func(r *Region) { r.Offset = math.MaxInt64 - 5 }),
		"larger than a file":   change(func(r *Region) { r.Size, r.Addr = 1<<63, 0 }),
		"offset beyond a file": change(func(r *Region) { r.Offset = 1 << 63 }),
	} {
		_, err := with(MemoryTable{r}.Append(nil)).MemoryTable(1)
		assert.ErrorIs(t, err, ErrMessage, name)
		_, err = with(SingleRegion{r}.Append(nil)).SingleRegion()
		assert.ErrorIs(t, err, ErrMessage, name)
	}
	same := change(func(r *Region) { r.UserAddr += r.Size })
	_, err := with(MemoryTable{region, same}.Append(nil)).MemoryTable(2)
	require.ErrorContains(t, err, "overlap")
	same = change(func(r *Region) { r.Addr += r.Size; r.UserAddr++ })
	_, err = with(MemoryTable{region, same}.Append(nil)).MemoryTable(2)
	require.ErrorContains(t, err, "overlap")

	var nine MemoryTable
	for i := range uint64(9) {
		nine = append(nine, change(func(r *Region) { r.Addr += i * r.Size; r.UserAddr += i * r.Size }))
	}
	_, err = with(nine.Append(nil)).MemoryTable(9)
	require.ErrorContains(t, err, "9 regions, at most 8")
	_, err = with(nine[:8].Append(nil)).MemoryTable(8)
	require.NoError(t, err)
	_, err = with(nine[:8].Append(nil)).MemoryTable(7)
	require.ErrorContains(t, err, "8 regions and 7 descriptors")
}

func TestRegionContains(t *testing.T) {
	r := Region{Addr: 1000, Size: 100, UserAddr: 5000}
	for _, c := range []struct {
		addr, n uint64
		want    bool
	}{{1000, 100, true}, {1000, 101, false}, {999, 1, false}, {1099, 1, true}, {1100, 0, true}, {1100, 1, false}, {1001, math.MaxUint64, false}, {math.MaxUint64, 2, false}} {
		assert.Equal(t, c.want, r.Contains(c.addr, c.n), "%d bytes at %d", c.n, c.addr)
		assert.Equal(t, c.want, r.ContainsUser(c.addr+4000, c.n), "%d bytes at %d", c.n, c.addr)
	}
}

func TestConfigurationBeyondItsEnd(t *testing.T) {
	for _, c := range []Config{{Offset: 257}, {Offset: math.MaxUint32, Data: []byte{1}}, {Offset: 250, Data: make([]byte, 7)}, {Data: make([]byte, 257)}} {
		_, err := with(c.Append(nil)).Config()
		assert.ErrorIs(t, err, ErrMessage, "%d bytes at %d", len(c.Data), c.Offset)
	}
}

func TestHeadersThatAreNone(t *testing.T) {
	good := NewMessage(SetOwner, nil).Append(nil)
	_, _, err := ParseHeader(good[:11])
	require.ErrorIs(t, err, ErrMessage)
	version := append([]byte(nil), good...)
	version[4] = 2
	_, _, err = ParseHeader(version)
	require.ErrorContains(t, err, "SET_OWNER of version 2, want 1")
	long := append([]byte(nil), good...)
	binary.LittleEndian.PutUint32(long[8:], MaxPayload+1)
	_, _, err = ParseHeader(long)
	require.ErrorContains(t, err, "payload of 4097 bytes")
	binary.LittleEndian.PutUint32(long[8:], 1)
	_, rest, err := ParseMessage(long)
	require.ErrorContains(t, err, "0 bytes of a payload of 1")
	require.Equal(t, long, rest)
}

func TestNames(t *testing.T) {
	assert.Equal(t, "SET_MEM_TABLE (0 bytes)", fmt.Sprint(NewMessage(SetMemTable, nil)))
	assert.Equal(t, "reply to request 77 (0 bytes)", fmt.Sprint(NewMessage(77, nil).Reply(nil)))
	assert.Equal(t, "MQ,STATUS,bit_63", (ProtocolMQ | ProtocolStatus | 1<<63).String())
	assert.Equal(t, "none", ProtocolFeatures(0).String())
	assert.True(t, GetStatus.Known() && GetStatus.Answered() && !SetStatus.Answered() && !Request(0).Known())
	assert.True(t, (ProtocolMQ | ProtocolStatus).Has(ProtocolMQ))
	assert.False(t, ProtocolMQ.Has(ProtocolMQ|ProtocolStatus))
	assert.EqualValues(t, 1<<30, FeatureProtocolFeatures)
	assert.EqualValues(t, 1<<16, ProtocolStatus)
	assert.Equal(t, "bit_30", spec.Features(FeatureProtocolFeatures).String(), "it is no feature of the device")
}

// FuzzVhostUserMessage reads whatever comes as messages, and each of those as every payload there is. What is accepted is written
// again and has to be the same.
func FuzzVhostUserMessage(f *testing.F) {
	f.Add(NewMessage(SetMemTable, MemoryTable{region}.Append(nil)).Append(nil), 1)
	f.Add(NewMessage(SetVringAddr, VringAddr{Index: 1, Desc: 1}.Append(nil)).Append(NewMessage(SetOwner, nil).Append(nil)), 0)
	f.Add(NewMessage(GetConfig, Config{Data: make([]byte, 24)}.Append(nil)).Append(nil), 0)
	f.Add(NewMessage(SetVringKick, VringFD{Index: 1}.Append(nil)).Append(nil), 1)
	f.Add(NewMessage(AddMemReg, SingleRegion{region}.Append(nil)).Append(nil), 1)
	f.Fuzz(func(t *testing.T, b []byte, fds int) {
		for len(b) > 0 {
			m, rest, err := ParseMessage(b)
			if err != nil {
				require.ErrorIs(t, err, ErrMessage)
				return
			}
			require.Equal(t, b[:len(b)-len(rest)], m.Append(nil))
			b = rest
			tryPayloads(t, m, fds)
		}
	})
}

func tryPayloads(t *testing.T, m Message, fds int) {
	same := func(got []byte, err error) {
		t.Helper()
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		require.Equal(t, string(m.Payload), string(got))
	}
	u, err := m.U64()
	same(AppendU64(nil, u), err)
	s, err := m.VringState()
	same(s.Append(nil), err)
	a, err := m.VringAddr()
	same(a.Append(nil), err)
	v, err := m.VringFD(fds)
	same(v.Append(nil), err)
	c, err := m.Config()
	same(c.Append(nil), err)
	l, err := m.Log()
	same(AppendU64(AppendU64(nil, l.Size), l.Offset), err)
	// A table may have padding that nobody reads.
	if table, err := m.MemoryTable(fds); err != nil {
		require.ErrorIs(t, err, ErrMessage)
	} else {
		again, err := with(table.Append(nil)).MemoryTable(fds)
		require.NoError(t, err)
		require.Equal(t, table, again)
		for _, r := range table {
			require.True(t, r.Contains(r.Addr, r.Size) && !r.Contains(r.Addr, r.Size+1))
		}
	}
	if r, err := m.SingleRegion(); err != nil {
		require.ErrorIs(t, err, ErrMessage)
	} else {
		again, err := with(r.Append(nil)).SingleRegion()
		require.NoError(t, err)
		require.Equal(t, r, again)
	}
}
