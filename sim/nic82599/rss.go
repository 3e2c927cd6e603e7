package nic82599

import (
	"encoding/binary"

	"bare.wire/ixgbe/reg"
	"bare.wire/sim/offload"
)

// rssState is receive-side scaling as programmed (§7.1.2.8).
type rssState struct {
	offload.Toeplitz
	stale bool // the key was written
}

// build takes the key from its registers.
func (s *rssState) build(c *Card) {
	s.stale = false
	var key [offload.KeyLen]byte
	for n := range reg.RSSRK_Count {
		binary.LittleEndian.PutUint32(key[4*n:], c.val(reg.RSSRK(n)))
	}
	s.SetKey(&key)
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
	hash = c.rss.Hash(p.addr, ports)
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
