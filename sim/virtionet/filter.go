package virtionet

import "encoding/binary"

// maxTable is how many addresses of each kind the filter holds; beyond it, all of the kind pass.
const maxTable = 64

// filter decides which frames the driver gets (§5.1.6.5.1 to 3).
type filter struct {
	mac                                                [6]byte
	promisc, allMulti, allUni, noMulti, noUni, noBcast bool
	uni, multi                                         [][6]byte
	uniAll, multiAll                                   bool // the table overflowed
	vlans                                              [4096 / 64]uint64
	allVLANs                                           bool
}

// reset opens the filter: a driver that has no way to set it wants all there is.
func (f *filter) reset(mac [6]byte) {
	*f = filter{mac: mac, promisc: true, uni: f.uni[:0], multi: f.multi[:0]}
}

// pass says whether a frame, of 14 bytes at least, is wanted.
func (f *filter) pass(b []byte) bool {
	if f.promisc {
		return true
	}
	if !f.allVLANs && binary.BigEndian.Uint16(b[12:]) == etherVLAN && len(b) >= 16 {
		if vid := binary.BigEndian.Uint16(b[14:]) & 0xFFF; f.vlans[vid/64]>>(vid%64)&1 == 0 {
			return false
		}
	}
	dst := [6]byte(b)
	switch {
	case dst == [6]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}:
		return !f.noBcast
	case dst[0]&1 != 0:
		return !f.noMulti && (f.allMulti || f.multiAll || listed(f.multi, dst))
	default:
		return !f.noUni && (f.allUni || f.uniAll || dst == f.mac || listed(f.uni, dst))
	}
}

func listed(list [][6]byte, a [6]byte) bool {
	for i := range list {
		if list[i] == a {
			return true
		}
	}
	return false
}
