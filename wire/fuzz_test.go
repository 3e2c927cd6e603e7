package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"bare.wire/wire"
)

// seed gives the fuzzer every good frame from byte at on, and cuts of it.
func seed(f *testing.F, at int) {
	for _, g := range goodFrames(f) {
		b := g.data[min(at, len(g.data)):]
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append(bytes.Clone(b), 1, 2, 3)) // padding
	}
	f.Add([]byte{})
}

// parsed checks what every parser promises: a failure has a known kind and
// returns nothing; a success returns a view of the start of b, which cannot be
// grown, and a payload right behind it, inside b.
func parsed[H ~[]byte](t *testing.T, b []byte, h H, payload []byte, err error) bool {
	t.Helper()
	if err != nil {
		knownKind(t, err)
		if h != nil || payload != nil {
			t.Fatalf("error %v came with a view", err)
		}
		return false
	}
	if len(h) == 0 || len(h)+len(payload) > len(b) || cap(h) != len(h) || &h[0] != &b[0] {
		t.Fatalf("view of %d bytes (capacity %d) and payload of %d from %d bytes", len(h), cap(h), len(payload), len(b))
	}
	if len(payload) > 0 && &payload[0] != &b[len(h)] {
		t.Fatal("payload is not behind the header")
	}
	if len(h)+len(payload) < len(b) && cap(payload) != len(payload) {
		t.Fatal("payload can be grown over what follows it")
	}
	return true
}

func knownKind(t *testing.T, err error) {
	t.Helper()
	for _, kind := range []error{wire.ErrTruncated, wire.ErrMalformed, wire.ErrTooDeep, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return
		}
	}
	t.Fatalf("error %q is of no known kind", err)
}

// same checks that building from the fields gave the header back. Room is
// filled with ones before, so that a byte left unwritten shows.
func same[H ~[]byte, F any](t *testing.T, h H, fields F, put func([]byte, F) (H, error)) {
	t.Helper()
	room := make([]byte, 100)
	fill(room, 0xff)
	got, err := put(room, fields)
	if err != nil {
		t.Fatalf("%+v from % x does not build: %v", fields, h, err)
	}
	if !bytes.Equal(got, h) || cap(got) != len(got) {
		t.Fatalf("built % x from fields of % x", got, h)
	}
	for i := range len(h) {
		if got, err := put(room[:i], fields); !errors.Is(err, wire.ErrNoRoom) || got != nil {
			t.Fatalf("%d bytes of room for %d: %v", i, len(h), err)
		}
	}
}

func FuzzEthernet(f *testing.F) {
	seed(f, 0)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseEthernet(b)
		if parsed(t, b, h, p, err) {
			same(t, h, h.Fields(), wire.PutEthernet)
		}
	})
}

func FuzzVLAN(f *testing.F) {
	seed(f, 14)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseVLAN(b)
		if !parsed(t, b, h, p, err) {
			return
		}
		same(t, h, h.Fields(), wire.PutVLAN)
		if c := h.TCI(); wire.MakeTCI(c.ID(), c.PCP(), c.DEI()) != c {
			t.Fatalf("TCI %#04x does not survive its parts", uint16(c))
		}
	})
}

func FuzzARP(f *testing.F) {
	seed(f, 14)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseARP(b)
		if parsed(t, b, h, p, err) {
			same(t, h, h.Fields(), wire.PutARP)
		}
	})
}

func FuzzIPv4(f *testing.F) {
	seed(f, 14)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseIPv4(b)
		if !parsed(t, b, h, p, err) {
			return
		}
		if len(h)+len(p) != h.TotalLen() {
			t.Fatalf("header %d and payload %d, total length %d", len(h), len(p), h.TotalLen())
		}
		walkOptions(t, h.Options())
		fields := h.Fields()
		h = bytes.Clone(h)
		h.FillChecksum() // what was there may be wrong; a builder writes the right one
		if !h.ChecksumOK() {
			t.Fatal("FillChecksum fills in a wrong one")
		}
		same(t, wire.IPv4(append([]byte(nil), h...)), fields, wire.PutIPv4)
		if h.DecrementTTL() && !h.ChecksumOK() {
			t.Fatal("DecrementTTL spoils the checksum")
		}
	})
}

func FuzzIPv6(f *testing.F) {
	seed(f, 14)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseIPv6(b)
		if !parsed(t, b, h, p, err) {
			return
		}
		same(t, h, h.Fields(), wire.PutIPv6)
		c, err := wire.WalkIPv6(h.NextHeader(), p)
		if err != nil {
			knownKind(t, err)
		}
		if c.Len < 0 || c.Len > len(p) {
			t.Fatalf("extensions of %d bytes in %d", c.Len, len(p))
		}
		if c.FragAt >= 0 {
			h, q, err := wire.ParseIPv6Extension(wire.ProtoFragment, p[c.FragAt:])
			if !parsed(t, p[c.FragAt:], h, q, err) || h.FragOffset() != c.FragOffset || h.FragID() != c.FragID {
				t.Fatalf("fragment header at %d: % x, %v", c.FragAt, h, err)
			}
		}
	})
}

func FuzzUDP(f *testing.F) {
	seed(f, 34)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseUDP(b)
		if parsed(t, b, h, p, err) {
			same(t, h, h.Fields(), wire.PutUDP)
		}
	})
}

func FuzzTCP(f *testing.F) {
	seed(f, 34)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseTCP(b)
		if !parsed(t, b, h, p, err) {
			return
		}
		if len(h)+len(p) != len(b) {
			t.Fatal("bytes are missing from the payload")
		}
		same(t, h, h.Fields(), wire.PutTCP)
		walkOptions(t, h.Options())
	})
}

// walkOptions reads options in all ways; the known ones must survive Put.
func walkOptions(t *testing.T, b []byte) {
	t.Helper()
	it, n := wire.Options(b), 0
	for {
		o, ok := it.Next()
		if !ok {
			break
		}
		n += 2 + len(o.Data)
		if n > len(b) || cap(o.Data) != len(o.Data) {
			t.Fatalf("options hold %d bytes of %d", n, len(b))
		}
	}
	if it.Err() != nil {
		knownKind(t, it.Err())
	}
	o, err := wire.ParseTCPOptions(b)
	if err != nil {
		knownKind(t, err)
	}
	room := make([]byte, 40)
	fill(room, 0xff)
	used, err := o.Put(room)
	if errors.Is(err, wire.ErrRange) && o.Len() > 40 {
		return // tight options need not fit when each is aligned
	}
	if err != nil || len(used) != o.Len() || len(used)%4 != 0 {
		t.Fatalf("%+v: %d bytes, Len %d, %v", o, len(used), o.Len(), err)
	}
	if back, err := wire.ParseTCPOptions(used); err != nil || back != trimSACK(o) {
		t.Fatalf("%+v came back as %+v, %v", o, back, err)
	}
}

// trimSACK drops blocks that a later, shorter SACK option left behind.
func trimSACK(o wire.TCPOptions) wire.TCPOptions {
	clear(o.SACK[o.NumSACK:])
	return o
}

func FuzzTCPOptions(f *testing.F) {
	f.Add([]byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7})
	f.Add([]byte{1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4})
	f.Add([]byte{8, 0})
	f.Fuzz(func(t *testing.T, b []byte) { walkOptions(t, b[:min(40, len(b))]) })
}

func FuzzICMP(f *testing.F) {
	seed(f, 34)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, p, err := wire.ParseICMP(b)
		if parsed(t, b, h, p, err) {
			same(t, h, h.Fields(), wire.PutICMP)
		}
		h6, p, err := wire.ParseICMPv6(b)
		if parsed(t, b, h6, p, err) {
			same(t, h6, h6.Fields(), wire.PutICMPv6)
		}
		// What an error message quotes may be cut anywhere.
		q4, p, err := wire.ParseIPv4Quoted(b)
		parsed(t, b, q4, p, err)
		q6, p, err := wire.ParseIPv6Quoted(b)
		parsed(t, b, q6, p, err)
		if _, _, err := wire.QuotedPorts(b); (err == nil) != (len(b) >= 4) {
			t.Fatalf("ports of %d bytes: %v", len(b), err)
		}
	})
}

func FuzzNeighbor(f *testing.F) {
	f.Add(append(append([]byte{136, 0, 0, 0, 0xe0, 0, 0, 0}, ip6A[:]...), 2, 1, 2, 0, 0, 0, 0, 1))
	f.Add(append(append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, ip6A[:]...), 1, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, opts, err := wire.ParseNeighbor(b)
		if !parsed(t, b, h, opts, err) {
			return
		}
		same(t, h, h.Fields(), wire.PutNeighbor)
		it, n := wire.NDPOptions(opts), 0
		for {
			o, ok := it.Next()
			if !ok {
				break
			}
			n += 2 + len(o.Data)
			o.MAC()
		}
		if it.Err() != nil {
			knownKind(t, it.Err())
		} else if n != len(opts) {
			t.Fatalf("options hold %d bytes of %d", n, len(opts))
		}
	})
}

func FuzzParse(f *testing.F) {
	seed(f, 0)
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := wire.Parse(b)
		if err != nil {
			knownKind(t, err)
		}
		if l.L3 > l.L4 || l.L4 > l.Payload || l.End > len(b) || l.Payload > len(b) || err == nil && l.Payload > l.End {
			t.Fatalf("offsets out of order in %d bytes: %+v (%v)", len(b), l, err)
		}
		if slow, slowErr := wire.ParseAny(b, len(b)); l != slow || err != slowErr {
			t.Fatalf("the short way and the long one differ: %+v (%v), %+v (%v)", l, err, slow, slowErr)
		}
		if len(b) < wire.EthernetLen {
			return
		}
		// The walk and the single parsers must agree.
		if h := l.IPv4(b); h != nil {
			if one, _, err := wire.ParseIPv4Quoted(b[l.L3:]); err != nil || !bytes.Equal(h, one) {
				t.Fatalf("IPv4 % x, alone % x, %v", h, one, err)
			}
		}
		if h := l.IPv6(b); h != nil {
			if one, _, err := wire.ParseIPv6Quoted(b[l.L3:]); err != nil || !bytes.Equal(h, one) {
				t.Fatalf("IPv6 % x, alone % x, %v", h, one, err)
			}
		}
		if h := l.TCP(b); h != nil {
			if one, p, err := wire.ParseTCP(b[l.L4:l.End]); err != nil || !bytes.Equal(h, one) || len(p) != l.End-l.Payload {
				t.Fatalf("TCP % x, alone % x, %v", h, one, err)
			}
		}
		if h := l.UDP(b); h != nil && !l.IsFragment() {
			if one, p, err := wire.ParseUDP(b[l.L4:l.End]); err != nil || !bytes.Equal(h, one) || len(p) != l.End-l.Payload {
				t.Fatalf("UDP % x, alone % x, %v", h, one, err)
			}
		}
		l.ICMP(b)
		l.ICMPv6(b)
		l.Addrs(b)
		l.Ports(b)
		l.CheckL3(b)
		l.CheckL4(b)
		for _, n := range []int{0, len(b) / 2, len(b) - 1} {
			l, err := wire.ParseHead(b[:n], len(b))
			if err != nil {
				knownKind(t, err)
			}
			if slow, slowErr := wire.ParseAny(b[:n], len(b)); l != slow || err != slowErr {
				t.Fatalf("%d bytes of head: %+v (%v), %+v (%v)", n, l, err, slow, slowErr)
			}
		}
	})
}
