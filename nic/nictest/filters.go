package nictest

import (
	"encoding/binary"
	"errors"

	"bare.wire/mbuf"
	"bare.wire/nic"
)

// passes sends a frame to each destination and checks which of them B lets in.
func (r *run) passes(pool *mbuf.Pool, when string, want map[[6]byte]bool) {
	r.Helper()
	for dst, in := range want {
		r.passesFrame(pool, when, r.frame(dst, 64), in)
	}
}

func (r *run) passesFrame(pool *mbuf.Pool, when string, f []byte, in bool) {
	r.Helper()
	r.sendFrames(r.A.Tx(0), pool, f)
	r.Settle()
	var into [2]*mbuf.Buf
	n := r.B.Rx(0).Recv(into[:])
	if (n == 1) != in || n > 1 {
		r.Errorf("%s: %d frames for %x (type and tag %x), want in %v", when, n, f[:6], f[12:16], in)
	}
	r.free(into[:n]...)
}

// done says whether a filter call worked; one that is not supported ends the test without a verdict.
func (r *run) done(what string, err error) bool {
	r.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if err != nil {
		r.Errorf("%s: %v", what, err)
	}
	return err == nil
}

func testAddressFilters(r *run) {
	r.startBoth(nic.Config{})
	if !r.filters("filters of addresses") {
		return
	}
	pool := r.pool(mbuf.Config{})
	own, other, second := r.B.Info().MAC, [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	flt := r.B.Filters()
	r.passes(pool, "at first", map[[6]byte]bool{own: true, other: false, second: false, broadcastMAC: true})
	if !r.done("add", flt.AddMAC(other)) {
		return
	}
	r.passes(pool, "one added", map[[6]byte]bool{own: true, other: true, second: false, broadcastMAC: true})
	r.done("add again", flt.AddMAC(other))
	r.done("add the second", flt.AddMAC(second))
	r.passes(pool, "two added", map[[6]byte]bool{own: true, other: true, second: true})
	r.done("remove", flt.RemoveMAC(other))
	r.passes(pool, "one removed", map[[6]byte]bool{own: true, other: false, second: true})
	r.done("remove its own address", flt.RemoveMAC(own))
	r.done("remove what was never added", flt.RemoveMAC([6]byte{2, 3, 4, 5, 6, 7}))
	r.passes(pool, "its own stays", map[[6]byte]bool{own: true, second: true, other: false})
	if r.done("promiscuous", flt.SetPromiscuous(true)) {
		r.passes(pool, "promiscuous", map[[6]byte]bool{own: true, other: true, {1, 2, 3, 4, 5, 6}: true, broadcastMAC: true})
		r.done("not promiscuous", flt.SetPromiscuous(false))
		r.passes(pool, "no more", map[[6]byte]bool{own: true, other: false, {1, 2, 3, 4, 5, 6}: false, second: true})
	}
}

func testMulticastFilters(r *run) {
	r.startBoth(nic.Config{})
	if !r.filters("filters of multicast addresses") {
		return
	}
	pool := r.pool(mbuf.Config{})
	flt := r.B.Filters()
	one, two := [6]byte{1, 0, 0x5e, 0, 0, 0x12}, [6]byte{0x33, 0x33, 0, 0xab, 0xcd, 0xef}
	r.passes(pool, "at first", map[[6]byte]bool{one: false, two: false})
	if !r.done("add", flt.AddMAC(one)) {
		return
	}
	r.passes(pool, "one added", map[[6]byte]bool{one: true, two: false, broadcastMAC: true})
	r.done("add", flt.AddMAC(two))
	r.passes(pool, "two added", map[[6]byte]bool{one: true, two: true})
	r.done("remove", flt.RemoveMAC(one))
	r.passes(pool, "one removed", map[[6]byte]bool{one: false, two: true})
	r.done("remove", flt.RemoveMAC(two))
	r.passes(pool, "both removed", map[[6]byte]bool{one: false, two: false})
	if r.done("all multicast", flt.SetAllMulticast(true)) {
		r.passes(pool, "all multicast", map[[6]byte]bool{one: true, two: true, {2, 5, 5, 5, 5, 5}: false})
		r.done("no more", flt.SetAllMulticast(false))
		r.passes(pool, "no more", map[[6]byte]bool{one: false, two: false})
	}
}

func testVLANFilters(r *run) {
	r.startBoth(nic.Config{VLANFilter: true})
	pool := r.pool(mbuf.Config{})
	flt := r.B.Filters()
	check := func(when string, vids map[uint16]bool, untagged bool) {
		r.Helper()
		for vid, in := range vids {
			r.passesFrame(pool, when, r.tagged(r.B.Info().MAC, vid|0x2000, 64), in)
		}
		r.passesFrame(pool, when, r.to(r.B, 64), untagged)
	}
	check("at first", map[uint16]bool{1: true, 4095: true, 100: true}, true)
	if !r.done("add VLAN 100", flt.AddVLAN(100)) {
		return
	}
	check("100 added", map[uint16]bool{1: false, 4095: false, 100: true, 101: false, 132: false}, true)
	r.done("add VLAN 4095", flt.AddVLAN(4095))
	check("4095 added", map[uint16]bool{1: false, 4095: true, 100: true}, true)
	r.done("remove VLAN 100", flt.RemoveVLAN(100))
	check("100 removed", map[uint16]bool{100: false, 4095: true}, true)
	r.done("remove VLAN 4095", flt.RemoveVLAN(4095))
	check("none left", map[uint16]bool{100: true, 4095: true}, true)
	if err := flt.AddVLAN(4096); err == nil {
		r.Error("there is no VLAN 4096, and AddVLAN says nothing")
	}
	r.done("add VLAN 7", flt.AddVLAN(7))
	if r.done("promiscuous", flt.SetPromiscuous(true)) {
		check("promiscuous", map[uint16]bool{7: true, 8: true}, true)
		r.done("not promiscuous", flt.SetPromiscuous(false))
		check("no more", map[uint16]bool{7: true, 8: false}, true)
	}
}

// testTooManyAddresses adds addresses until one is refused: then it is, with an error, and all others still work. A port that
// refuses none may let others in too, once it has more than it can tell apart, until it has fewer again.
func testTooManyAddresses(r *run) {
	r.startBoth(nic.Config{})
	pool := r.pool(mbuf.Config{})
	flt := r.B.Filters()
	mac := func(i int) (m [6]byte) {
		m[0] = 2
		binary.BigEndian.PutUint32(m[2:], uint32(i))
		return m
	}
	n := 0
	for ; n < 5000; n++ {
		err := flt.AddMAC(mac(n))
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if err != nil {
			break
		}
	}
	if n == 0 {
		r.Fatal("not one address can be added")
	}
	r.passes(pool, "full", map[[6]byte]bool{mac(0): true, mac(n / 2): true, mac(n - 1): true, r.B.Info().MAC: true})
	if n == 5000 {
		for i := 1; i < n; i++ {
			r.done("remove", flt.RemoveMAC(mac(i)))
		}
		r.passes(pool, "removed", map[[6]byte]bool{mac(0): true, mac(1): false, mac(n - 1): false, mac(n): false, r.B.Info().MAC: true})
		return
	}
	r.passes(pool, "full", map[[6]byte]bool{mac(n): false})
	r.done("remove", flt.RemoveMAC(mac(n/2)))
	r.done("add in its place", flt.AddMAC(mac(n+1)))
	r.passes(pool, "exchanged", map[[6]byte]bool{mac(n / 2): false, mac(n + 1): true, mac(0): true, mac(n - 1): true})
}

func testFiltersOutliveRestart(r *run) {
	r.startBoth(nic.Config{})
	if !r.filters("filters of addresses") {
		return
	}
	pool := r.pool(mbuf.Config{})
	added, group := [6]byte{2, 0, 0, 0, 1, 1}, [6]byte{1, 0, 0x5e, 9, 9, 9}
	if !r.done("add", r.B.Filters().AddMAC(added)) || !r.done("add a group", r.B.Filters().AddMAC(group)) {
		return
	}
	r.stop(r.A, r.B)
	r.startBoth(nic.Config{})
	r.passes(pool, "after a restart", map[[6]byte]bool{added: true, group: true, r.B.Info().MAC: true, {2, 4, 4, 4, 4, 4}: false})
}
