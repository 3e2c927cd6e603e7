package wire_test

import (
	"testing"

	"bare.wire/wire"
)

// noAllocs fails when f allocates.
func noAllocs(t *testing.T, name string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations", name, n)
	}
}

var errSink error

func TestNothingAllocates(t *testing.T) {
	for _, f := range goodFrames(t) {
		noAllocs(t, "Parse "+f.name, func() {
			l, err := wire.Parse(f.data)
			layersSink, errSink = l, err
			l.CheckL3(f.data)
			l.CheckL4(f.data)
			l.Addrs(f.data)
			l.Ports(f.data)
			if h := l.TCP(f.data); h != nil {
				_, errSink = wire.ParseTCPOptions(h.Options())
			}
		})
		noAllocs(t, "Parse a cut "+f.name, func() {
			for n := range f.data {
				layersSink, errSink = wire.Parse(f.data[:n])
			}
		})
	}
	room := make([]byte, 100)
	noAllocs(t, "building UDP", func() { _, errSink = putUDP4(room, 18) })
	noAllocs(t, "building without room", func() {
		for n := range 40 {
			_, errSink = putUDP4(room[:n], 18)
		}
	})
	o := wire.TCPOptions{MSS: 1460, HasTimestamps: true, NumSACK: 2}
	noAllocs(t, "building TCP", func() {
		var opts [40]byte
		used, err := o.Put(opts[:])
		if err == nil {
			_, err = wire.PutTCP(room, wire.TCPFields{SrcPort: 1, Options: used})
		}
		errSink = err
	})
	noAllocs(t, "building the rest", func() {
		_, errSink = wire.PutARP(room, wire.ARPFields{})
		_, errSink = wire.PutIPv6(room, wire.IPv6Fields{})
		_, errSink = wire.PutIPv6Fragment(room, wire.IPv6FragmentFields{})
		_, errSink = wire.PutICMP(room, wire.ICMPFields{})
		_, errSink = wire.PutNeighbor(room, wire.NeighborFields{Type: wire.ICMPv6NeighborSolicit})
	})
	if errSink != nil {
		t.Error(errSink)
	}
}
