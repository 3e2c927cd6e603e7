package wire

import "encoding/binary"

// OptionKind is the first byte of an IPv4 or TCP option. The numbers mean
// different things in the two, except 0 and 1.
type OptionKind uint8

// The kinds of option that are read or written here: RFC 9293 §3.2 (0…2), RFC
// 7323 §2.2 (3) and §3.2 (8), RFC 2018 §2 (4) and §3 (5).
const (
	OptionEnd        OptionKind = 0 // one byte; nothing after it counts. Also in IPv4
	OptionNop        OptionKind = 1 // one byte of padding. Also in IPv4
	TCPOptMSS        OptionKind = 2
	TCPOptWScale     OptionKind = 3
	TCPOptSACKOK     OptionKind = 4
	TCPOptSACK       OptionKind = 5
	TCPOptTimestamps OptionKind = 8
)

// Option is one option that has a length. Data lies in the header.
type Option struct {
	Kind OptionKind
	Data []byte // without kind and length
}

// OptionIter walks the options of an IPv4 or TCP header, which have the same
// outer form (RFC 791 §3.1, RFC 9293 §3.1). Paddings are passed over; every step
// goes forward, so hostile bytes end it.
type OptionIter struct {
	rest []byte
	err  error
}

// Options makes an iterator over b, IPv4.Options or TCP.Options.
func Options(b []byte) OptionIter { return OptionIter{rest: b} }

// Next returns the next option. False: no more, or an error; see Err.
func (it *OptionIter) Next() (Option, bool) {
	for len(it.rest) > 0 {
		b := it.rest
		switch OptionKind(b[0]) {
		case OptionEnd:
			it.rest = nil
			return Option{}, false
		case OptionNop:
			it.rest = b[1:]
			continue
		}
		if len(b) < 2 {
			return it.fail(errOptionShort)
		}
		n := int(b[1])
		if n < 2 {
			return it.fail(errOptionLow)
		}
		if n > len(b) {
			return it.fail(errOptionLong)
		}
		it.rest = b[n:]
		return Option{Kind: OptionKind(b[0]), Data: b[2:n:n]}, true
	}
	return Option{}, false
}

func (it *OptionIter) fail(err error) (Option, bool) {
	it.rest, it.err = nil, err
	return Option{}, false
}

// Err tells why Next stopped; nil at a proper end.
func (it *OptionIter) Err() error { return it.err }

// SACKBlock is a run of received octets: Left is the first, Right the one after
// the last (RFC 2018 §3).
type SACKBlock struct{ Left, Right uint32 }

// MaxSACKBlocks is how many fit in a header; three when timestamps are there too.
const MaxSACKBlocks = 4

// MaxWindowShift is the largest shift of a window; larger ones count as this
// (RFC 7323 §2.3).
const MaxWindowShift = 14

// TCPOptions are the options a stack deals with, by value. The zero value has
// none.
type TCPOptions struct {
	MSS           uint16 // bytes; 0: absent, and the default holds (RFC 9293 §3.7.1)
	WindowShift   uint8  // 0…14, with HasWindow
	HasWindow     bool
	SACKPermitted bool
	HasTimestamps bool
	TSVal, TSEcr  uint32
	NumSACK       uint8 // entries of SACK that are there
	SACK          [MaxSACKBlocks]SACKBlock
}

// tsWord is a timestamp option behind two paddings, read as one word: the form
// that nearly all segments have (RFC 7323 appendix A).
const tsWord = uint32(OptionNop)<<24 | uint32(OptionNop)<<16 | uint32(TCPOptTimestamps)<<8 | 10

// ParseTCPOptions reads the known options of b, TCP.Options, and passes over
// others by their length (RFC 9293 §3.1, MUST-6). The last of two of a kind
// holds. After an error the options before it are in the result (MUST-7: how
// hard to be on such a segment is the caller's decision).
func ParseTCPOptions(b []byte) (TCPOptions, error) {
	var o TCPOptions
	if len(b) == 12 && binary.BigEndian.Uint32(b) == tsWord {
		o.HasTimestamps = true
		o.TSVal, o.TSEcr = binary.BigEndian.Uint32(b[4:8]), binary.BigEndian.Uint32(b[8:12])
		return o, nil
	}
	it := Options(b)
	for {
		opt, ok := it.Next()
		if !ok {
			return o, it.Err()
		}
		if !o.read(opt) {
			return o, errOptionLength
		}
	}
}

// read takes one option; false when its length is wrong for its kind.
func (o *TCPOptions) read(opt Option) bool {
	d := opt.Data
	switch opt.Kind {
	case TCPOptMSS:
		if len(d) != 2 {
			return false
		}
		o.MSS = binary.BigEndian.Uint16(d)
	case TCPOptWScale:
		if len(d) != 1 {
			return false
		}
		o.HasWindow, o.WindowShift = true, min(d[0], MaxWindowShift)
	case TCPOptSACKOK:
		if len(d) != 0 {
			return false
		}
		o.SACKPermitted = true
	case TCPOptTimestamps:
		if len(d) != 8 {
			return false
		}
		o.HasTimestamps = true
		o.TSVal, o.TSEcr = binary.BigEndian.Uint32(d[0:4]), binary.BigEndian.Uint32(d[4:8])
	case TCPOptSACK:
		return o.readSACK(d)
	}
	return true
}

func (o *TCPOptions) readSACK(d []byte) bool {
	if len(d) == 0 || len(d)%8 != 0 || len(d) > 8*MaxSACKBlocks {
		return false
	}
	o.NumSACK = uint8(len(d) / 8)
	for i := range int(o.NumSACK) {
		o.SACK[i] = SACKBlock{
			Left:  binary.BigEndian.Uint32(d[8*i:]),
			Right: binary.BigEndian.Uint32(d[8*i+4:]),
		}
	}
	return true
}

// Len is the number of bytes that Put writes: a multiple of 4.
func (o *TCPOptions) Len() int {
	n := 0
	if o.MSS != 0 {
		n += 4
	}
	switch {
	case o.HasTimestamps:
		n += 12
	case o.SACKPermitted:
		n += 4
	}
	if o.HasWindow {
		n += 4
	}
	if o.NumSACK > 0 {
		n += 4 + 8*int(o.NumSACK)
	}
	return n
}

// Put writes the options at the start of room, each padded so that its words
// are aligned (RFC 7323 appendix A), and returns the room used. Which options
// may stand in which segment is the caller's to know: MSS, window scale and
// SACK-permitted only with SYN.
func (o *TCPOptions) Put(room []byte) ([]byte, error) {
	n := o.Len()
	if n > TCPMaxLen-TCPMinLen { // five blocks are too long, too
		return nil, errTCPPutSACK
	}
	if len(room) < n {
		return nil, errTCPOptRoom
	}
	used, b := room[:n:n], room[:n]
	word := func(v uint32) {
		binary.BigEndian.PutUint32(b, v)
		b = b[4:]
	}
	const nops = uint32(OptionNop)<<24 | uint32(OptionNop)<<16
	if o.MSS != 0 {
		word(uint32(TCPOptMSS)<<24 | 4<<16 | uint32(o.MSS))
	}
	switch {
	case o.HasTimestamps && o.SACKPermitted: // SACK-permitted in place of the paddings
		word(uint32(TCPOptSACKOK)<<24 | 2<<16 | uint32(TCPOptTimestamps)<<8 | 10)
	case o.HasTimestamps:
		word(tsWord)
	case o.SACKPermitted:
		word(nops | uint32(TCPOptSACKOK)<<8 | 2)
	}
	if o.HasTimestamps {
		word(o.TSVal)
		word(o.TSEcr)
	}
	if o.HasWindow {
		word(uint32(OptionNop)<<24 | uint32(TCPOptWScale)<<16 | 3<<8 | uint32(min(o.WindowShift, MaxWindowShift)))
	}
	if o.NumSACK > 0 {
		word(nops | uint32(TCPOptSACK)<<8 | 2 + 8*uint32(o.NumSACK))
		for _, s := range o.SACK[:o.NumSACK] {
			word(s.Left)
			word(s.Right)
		}
	}
	return used, nil
}
