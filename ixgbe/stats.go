package ixgbe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"bare.wire/ixgbe/reg"
	"bare.wire/nic"
)

// hangTime is how long a transmit queue may stand still, with descriptors waiting and the link up, before the port is
// given up: far longer than any pause frame holds (65535 quanta of 512 bit times are 3.4 ms).
const hangTime = 5 * time.Second

// statSets is the number of counter sets; queue i counts in set i mod 16 (RQSMR, TQSM).
const statSets = 16

// statistics are the card's counters, added up. Every register clears when it is read, so only this reads them; those of
// 32 bits wrap in 288 s and those of 36 in 55 s, so somebody has to read them more often than that (Housekeep).
type statistics struct {
	mu       sync.Mutex
	counters []counter
	total    map[string][]uint64 // by the statistic's name in package reg, by index
	txBytes  uint64              // what Stats said last
}

// counter is one register, or a pair for 36 bits, and where it is added.
type counter struct {
	low, high uint32
	pair      bool
	sum       *uint64
}

// build makes the list of registers from the table of package reg.
func (s *statistics) build() {
	byName := make(map[string]*reg.Reg)
	all := reg.All()
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	s.total = make(map[string][]uint64)
	for _, st := range reg.Stats() {
		low, high := byName[st.Reg], byName[st.High]
		sums := make([]uint64, low.Count())
		s.total[st.Name] = sums
		for i := range sums {
			c := counter{sum: &sums[i]}
			c.low, _ = low.Offset(i)
			if high != nil {
				c.high, c.pair = first(high.Offset(i)), true
			}
			s.counters = append(s.counters, c)
		}
	}
}

func first(off uint32, _ bool) uint32 { return off }

// collect adds what has been counted since the last time. A card that has gone reads all ones: nothing is added then.
func (s *statistics) collect(p *Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Err() != nil {
		return
	}
	for i := range s.counters {
		c := &s.counters[i]
		v := uint64(p.read(c.low)) // the low half first: the high one clears both
		if c.pair {
			v |= uint64(p.read(c.high)&0xf) << 32
		}
		if uint32(v) == allOnes && p.read(reg.STATUS) == allOnes {
			return
		}
		*c.sum += v
	}
}

// clearStats maps queues to counter sets and reads every counter once, which clears it (§4.6.5).
func (p *Port) clearStats(context.Context) error {
	for n := range reg.RQSMR_Count {
		var v uint32
		for k := range 4 {
			v |= uint32((4*n+k)%statSets) << (8 * k)
		}
		p.write(reg.RQSMR(n), v)
		p.write(reg.TQSM(n), v)
	}
	s := &p.stats
	s.collect(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sums := range s.total {
		clear(sums)
	}
	s.txBytes = 0
	return nil
}

func (s *statistics) sum(names ...string) (n uint64) {
	for _, name := range names {
		for _, v := range s.total[name] {
			n += v
		}
	}
	return n
}

// Stats implements nic.Port.
//
// Received packets are the sum of the queues' counters: GPRC counts packets that were then missed too. QBRC and QBTC count
// bytes as they crossed the bus, without FCS; GOTC has the FCS in it, which is taken off in 64 bits.
func (p *Port) Stats() nic.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started && p.Err() == nil {
		p.stats.collect(p)
	}
	s := &p.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sum("tx_packets")
	out := nic.Stats{
		RxPackets: s.sum("rx_queue_packets"), RxBytes: s.sum("rx_queue_bytes"),
		TxPackets: sent, TxBytes: s.bytesSent(),
		RxMulticast: s.sum("rx_multicast"), RxBroadcast: s.sum("rx_broadcast"),
		RxMissed: s.sum("rx_missed"), RxNoDesc: s.sum("rx_queue_dropped"),
		RxCRCErrors: s.sum("rx_crc_errors"), RxLengthErrors: s.sum("rx_length_errors", "rx_undersize", "rx_fragments", "rx_oversize"),
		RxErrors:    s.sum("rx_crc_errors", "rx_illegal_symbols", "rx_error_bytes", "rx_mac_short", "rx_length_errors", "rx_undersize", "rx_fragments", "rx_oversize"),
		Quarantined: p.heldBack,
	}
	p.addQueues(&out)
	return out
}

// bytesSent takes the FCS off the bytes sent, in 64 bits. Packets and bytes are not read at the same moment: a frame that is
// sent in between has its bytes counted a look before its FCS is taken off, and the total must not go back for that.
func (s *statistics) bytesSent() uint64 {
	if all, fcs := s.sum("tx_bytes"), fcsLen*s.sum("tx_packets"); all > fcs {
		s.txBytes = max(s.txBytes, all-fcs)
	}
	return s.txBytes
}

// addQueues adds what the driver itself counts.
func (p *Port) addQueues(out *nic.Stats) {
	out.Queues = make([]nic.QueueStats, max(len(p.rx), len(p.tx)))
	for i, q := range p.rx {
		s := &out.Queues[i]
		s.RxPackets, s.RxBytes, s.RxNoBuf = q.packets.Load(), q.bytes.Load(), q.noBuf.Load()
		out.RxNoBuf += s.RxNoBuf
		out.RxErrors += q.errors.Load()
		if len(p.rx) <= statSets {
			s.RxNoDesc = p.stats.total["rx_queue_dropped"][i]
		}
	}
	for i, q := range p.tx {
		s := &out.Queues[i]
		s.TxPackets, s.TxBytes, s.TxFull = q.packets.Load(), q.bytes.Load(), q.full.Load()
		out.TxFull += s.TxFull
		for r := range q.dropped {
			n := q.dropped[r].Load()
			out.TxDropped[r] += n
			out.TxErrors += n
		}
	}
}

// ExtendedStats returns every counter of the card by its name in package reg, those that are zero too; arrays are added
// up.
func (p *Port) ExtendedStats() map[string]uint64 {
	p.Stats()
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	out := make(map[string]uint64, len(p.stats.total))
	for name := range p.stats.total {
		out[name] = p.stats.sum(name)
	}
	return out
}

// checkHang gives the port up when a transmit queue stands still: descriptors wait (TDH ≠ TDT), the link is up, and for
// hangTime neither the head has moved nor the queue's counter set has counted a packet. The head alone would not do: it may
// have gone round the ring. It follows collect.
func (p *Port) checkHang() {
	now := p.clk.Nanos()
	for i, q := range p.tx {
		head, tail := p.read(reg.TDH(i)), p.read(reg.TDT(i))
		sent := p.stats.total["tx_queue_packets"][i%statSets]
		if head == tail || head != q.hang.head || sent != q.hang.sent || !q.hang.waits || !p.Link().Up {
			q.hang = hangWatch{head: head, sent: sent, since: now, waits: head != tail}
			continue
		}
		if now-q.hang.since >= int64(hangTime) {
			p.fail(fmt.Errorf("%s: transmit queue %d stands still at TDH %d, TDT %d for %v with the link up: %w; Close the port and open it again",
				p.info.Name, i, head, tail, hangTime, nic.ErrGone))
			return
		}
	}
}

// hangWatch is what checkHang saw last of a queue.
type hangWatch struct {
	head  uint32
	sent  uint64
	since int64 // ns of the clock
	waits bool  // the card had descriptors to send
}
