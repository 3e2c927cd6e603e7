package wire_test

import (
	"errors"
	"slices"
	"testing"

	"bare.wire/wire"
)

func TestTCPOptionsInAllShapes(t *testing.T) {
	ts := []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 2}
	stamped := wire.TCPOptions{HasTimestamps: true, TSVal: 1, TSEcr: 2}
	cases := []struct {
		name string
		b    []byte
		want wire.TCPOptions
		err  error
	}{
		{"none", nil, wire.TCPOptions{}, nil},
		{"padding only", []byte{1, 1, 1, 1}, wire.TCPOptions{}, nil},
		{"end hides the rest", []byte{0, 2, 4, 5, 180, 0, 0, 0}, wire.TCPOptions{}, nil},
		{"aligned timestamps", append([]byte{1, 1}, ts...), stamped, nil},
		{"aligned timestamps and a block", slices.Concat([]byte{1, 1}, ts, []byte{1, 1, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4}),
			wire.TCPOptions{HasTimestamps: true, TSVal: 1, TSEcr: 2, NumSACK: 1, SACK: [4]wire.SACKBlock{{Left: 3, Right: 4}}}, nil},
		{"unaligned timestamps", append(slices.Clone(ts), 1, 1), stamped, nil},
		{"unknown option passed over", append([]byte{254, 4, 9, 9}, ts...), stamped, nil},
		{"shift above 14 counts as 14", []byte{3, 3, 200, 0}, wire.TCPOptions{HasWindow: true, WindowShift: 14}, nil},
		{"shift 0 is there", []byte{3, 3, 0, 0}, wire.TCPOptions{HasWindow: true}, nil},
		{"last MSS holds", []byte{2, 4, 1, 1, 2, 4, 2, 2}, wire.TCPOptions{MSS: 0x202}, nil},
		{"two blocks", []byte{5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4},
			wire.TCPOptions{NumSACK: 2, SACK: [4]wire.SACKBlock{{Left: 1, Right: 2}, {Left: 3, Right: 4}}}, nil},
		{"length 0", []byte{4, 2, 9, 0}, wire.TCPOptions{SACKPermitted: true}, wire.ErrMalformed},
		{"length 1", []byte{4, 2, 9, 1}, wire.TCPOptions{SACKPermitted: true}, wire.ErrMalformed},
		{"no length", []byte{4, 2, 9}, wire.TCPOptions{SACKPermitted: true}, wire.ErrTruncated},
		{"length past the header", []byte{4, 2, 9, 3}, wire.TCPOptions{SACKPermitted: true}, wire.ErrTruncated},
		{"MSS of 3 bytes", []byte{2, 3, 1, 0}, wire.TCPOptions{}, wire.ErrMalformed},
		{"window scale of 4 bytes", []byte{3, 4, 1, 0}, wire.TCPOptions{}, wire.ErrMalformed},
		{"SACK-permitted of 3 bytes", []byte{4, 3, 0, 0}, wire.TCPOptions{}, wire.ErrMalformed},
		{"timestamps of 9 bytes", []byte{8, 9, 0, 0, 0, 0, 0, 0, 0}, wire.TCPOptions{}, wire.ErrMalformed},
		{"SACK without a block", []byte{5, 2}, wire.TCPOptions{}, wire.ErrMalformed},
		{"half a SACK block", []byte{5, 6, 0, 0, 0, 1}, wire.TCPOptions{}, wire.ErrMalformed},
		{"five SACK blocks", append([]byte{5, 42}, make([]byte, 40)...), wire.TCPOptions{}, wire.ErrMalformed},
	}
	for _, c := range cases {
		got, err := wire.ParseTCPOptions(c.b)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestTCPOptionsPutInTheUsualLayout(t *testing.T) {
	syn := wire.TCPOptions{MSS: 1460, SACKPermitted: true, HasTimestamps: true, TSVal: 1, HasWindow: true, WindowShift: 99}
	blocks := [4]wire.SACKBlock{{Left: 1, Right: 2}, {Left: 3, Right: 4}, {Left: 5, Right: 6}, {Left: 7, Right: 8}}
	cases := []struct {
		name string
		o    wire.TCPOptions
		want []byte
	}{
		{"nothing", wire.TCPOptions{}, nil},
		{"SYN", syn, []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 14}},
		{"timestamps", wire.TCPOptions{HasTimestamps: true, TSEcr: 5}, []byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 5}},
		{"SACK-permitted alone", wire.TCPOptions{SACKPermitted: true}, []byte{1, 1, 4, 2}},
		{"one block", wire.TCPOptions{NumSACK: 1, SACK: blocks}, []byte{1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2}},
	}
	for _, c := range cases {
		room := make([]byte, 40)
		used, err := c.o.Put(room)
		if err != nil || !slices.Equal(used, c.want) {
			t.Errorf("%s: % x, %v", c.name, used, err)
		}
		if len(c.want) > 0 {
			if _, err := c.o.Put(room[:len(c.want)-1]); !errors.Is(err, wire.ErrNoRoom) {
				t.Errorf("%s: %v without room", c.name, err)
			}
		}
	}
	full := wire.TCPOptions{NumSACK: 3, HasTimestamps: true}
	if used, err := full.Put(make([]byte, 40)); err != nil || len(used) != 40 {
		t.Errorf("three blocks and timestamps: %d bytes, %v", len(used), err)
	}
	for _, n := range []uint8{4, 5, 255} {
		full.NumSACK = n
		if _, err := full.Put(make([]byte, 3000)); !errors.Is(err, wire.ErrRange) {
			t.Errorf("%d blocks and timestamps: %v", n, err)
		}
	}
}

func TestIPv4OptionsAreWalkedTheSameWay(t *testing.T) {
	it := wire.Options([]byte{1, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0, 99})
	var kinds []wire.OptionKind
	for o, ok := it.Next(); ok; o, ok = it.Next() {
		kinds = append(kinds, o.Kind)
	}
	if it.Err() != nil || !slices.Equal(kinds, []wire.OptionKind{148, 7}) {
		t.Errorf("kinds %v, %v", kinds, it.Err())
	}
}
