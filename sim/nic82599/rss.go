package nic82599

import (
	"bare.wire/ixgbe/reg"
)

// rssKeyLen is the length of the key in bytes; hashInput the longest input: two IPv6 addresses and two ports.
const (
	rssKeyLen = 40
	hashInput = 36
)

// rssState is receive-side scaling as programmed (§7.1.2.8). The hash is a sum (exclusive or) of one table entry for each
// byte of input; the tables follow from the key.
type rssState struct {
	stale bool
	table [hashInput][256]uint32
}

// build makes the tables from the key registers.
func (s *rssState) build(c *Card) {
	s.stale = false
	var key [rssKeyLen]byte
	for n := range reg.RSSRK_Count {
		v := c.val(reg.RSSRK(n))
		key[4*n], key[4*n+1], key[4*n+2], key[4*n+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	for i := range s.table {
		// The 32 bits of the key that start at bit 8i, and the 8 that come after.
		w := uint64(key[i])<<32 | uint64(key[i+1])<<24 | uint64(key[i+2])<<16 | uint64(key[i+3])<<8 | uint64(key[i+4])
		for b := range 256 {
			var h uint32
			for bit := range 8 {
				if b>>(7-bit)&1 != 0 {
					h ^= uint32(w >> (8 - bit))
				}
			}
			s.table[i][b] = h
		}
	}
}

// hash is the Toeplitz hash of a followed by b.
func (s *rssState) hash(a, b []byte) (h uint32) {
	for i, x := range a {
		h ^= s.table[i][x]
	}
	for i, x := range b {
		h ^= s.table[len(a)+i][x]
	}
	return h
}

// rssType is the value of the descriptor's RSSTYPE field.
type rssType uint64

const (
	rssNone   rssType = 0
	rssTCP4   rssType = 1
	rssIP4    rssType = 2
	rssTCP6   rssType = 3
	rssIP6EX  rssType = 4
	rssIP6    rssType = 5
	rssTCP6EX rssType = 6
	rssUDP4   rssType = 7
	rssUDP6   rssType = 8
)

// spread returns the queue of a packet, its hash and what that covers.
func (c *Card) spread(p *packet) (queue int, hash uint32, typ rssType) {
	m := c.val(reg.MRQC)
	if reg.Get(m, reg.MRQC_MRQE) != 1 || p.addr == nil {
		return 0, 0, rssNone
	}
	if c.rss.stale {
		c.rss.build(c)
	}
	typ, ports := c.rssKind(m, p)
	if typ == rssNone {
		return 0, 0, rssNone
	}
	hash = c.rss.hash(p.addr, ports)
	entry := hash & 127
	queue = int(c.val(reg.RETA(int(entry/4))) >> (entry % 4 * 8) & 15)
	c.count.RxHashed++
	if c.cfg.Faults.BadRSSQueue {
		queue ^= 1
	}
	return queue, hash, typ
}

// rssKind picks the most specific of the enabled kinds of hash that fits.
func (c *Card) rssKind(m uint32, p *packet) (rssType, []byte) {
	four := len(p.addr) == 8
	var l4, ip []rssChoice
	switch {
	case four && p.ports != nil && p.tcp:
		l4 = choiceTCP4
	case four && p.ports != nil:
		l4 = choiceUDP4
	case p.ports != nil && p.tcp:
		l4 = choiceTCP6
	case p.ports != nil:
		l4 = choiceUDP6
	}
	if four {
		ip = choiceIP4
	} else {
		ip = choiceIP6
	}
	for _, x := range l4 {
		if m&x.bit != 0 {
			return x.typ, p.ports
		}
	}
	for _, x := range ip {
		if m&x.bit != 0 {
			return x.typ, nil
		}
	}
	return rssNone, nil
}

type rssChoice struct {
	bit uint32
	typ rssType
}

var (
	choiceTCP4 = []rssChoice{{reg.MRQC_RSS_TCP4, rssTCP4}}
	choiceUDP4 = []rssChoice{{reg.MRQC_RSS_UDP4, rssUDP4}}
	choiceIP4  = []rssChoice{{reg.MRQC_RSS_IP4, rssIP4}}
	choiceTCP6 = []rssChoice{{reg.MRQC_RSS_TCP6, rssTCP6}, {reg.MRQC_RSS_TCP6EX, rssTCP6EX}}
	choiceUDP6 = []rssChoice{{reg.MRQC_RSS_UDP6, rssUDP6}}
	choiceIP6  = []rssChoice{{reg.MRQC_RSS_IP6, rssIP6}, {reg.MRQC_RSS_IP6EX, rssIP6EX}}
)

func (c *Card) writeMRQC(v uint32) {
	if m := reg.Get(v, reg.MRQC_MRQE); m > 1 {
		c.wrong(Unsupported, -1, "MRQC.MRQE = %d: traffic classes and pools", m)
	}
}
