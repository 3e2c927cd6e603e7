package testpmd

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// Packet is a received or sent packet as `set verbose` shows it.
type Packet struct {
	Sent     bool
	Port     int
	Queue    int // the queue it was polled from, or sent to
	Src, Dst net.HardwareAddr
	Type     uint16 // EtherType in the buffer, after a VLAN tag was stripped
	Length   int    // bytes, without FCS
	Segments int
	Hash     uint32 // RSS hash, when the flags have RX_RSS_HASH
	VLAN     uint16 // TCI, when the flags have RX_VLAN
	HwType   string // packet type as the card says, such as "L2_ETHER L3_IPV4 L4_UDP"
	Flags    map[string]bool
}

// Has says whether a flag is set, by its name without RTE_MBUF_F_.
func (p Packet) Has(flag string) bool { return p.Flags["RTE_MBUF_F_"+flag] }

var (
	burst       = regexp.MustCompile(`port ([0-9]+)/queue ([0-9]+): (received|sent) ([0-9]+) packets`)
	addresses   = regexp.MustCompile(`^\s*src=([0-9A-F:]+) - dst=([0-9A-F:]+) - .*?type=0x([0-9a-f]+) - length=([0-9]+) - nb_segs=([0-9]+)`)
	packetHash  = regexp.MustCompile(` - RSS hash=0x([0-9a-f]+)`)
	packetVLAN  = regexp.MustCompile(` - VLAN tci=0x([0-9a-f]+)`)
	packetType  = regexp.MustCompile(` - hw ptype: (.*?) +- `)
	packetFlags = regexp.MustCompile(`^\s*ol_flags: (.*)$`)
)

// ParsePackets reads the packets that an engine printed with `set verbose 1` (received), 2 (sent) or 3 (both). Other text
// between them is passed over; a packet that is not whole is an error.
func ParsePackets(text string) ([]Packet, error) {
	var all []Packet
	var of Packet
	left, flags := 0, false // packets that the burst still owes; the last packet waits for its flags
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case burst.MatchString(line):
			if left > 0 {
				return all, fmt.Errorf("a burst begins where %d packets of another are missing: %q", left, line)
			}
			m := burst.FindStringSubmatch(line)
			of = Packet{Port: number(m[1], 10), Queue: number(m[2], 10), Sent: m[3] == "sent"}
			left = number(m[4], 10)
		case left > 0 && addresses.MatchString(line):
			p, err := of.describe(line)
			if err != nil {
				return all, err
			}
			all = append(all, p)
			left--
			flags = true
		case flags && packetFlags.MatchString(line):
			p := &all[len(all)-1]
			for name := range strings.FieldsSeq(packetFlags.FindStringSubmatch(line)[1]) {
				p.Flags[name] = true
			}
			flags = false
		}
	}
	if left > 0 || flags {
		return all, fmt.Errorf("the output ends inside a packet; %d are missing", left)
	}
	return all, nil
}

// describe reads the line of one packet of a burst.
func (p Packet) describe(line string) (Packet, error) {
	m := addresses.FindStringSubmatch(line)
	var err error
	if p.Src, err = net.ParseMAC(m[1]); err != nil {
		return p, err
	}
	if p.Dst, err = net.ParseMAC(m[2]); err != nil {
		return p, err
	}
	p.Type = uint16(number(m[3], 16))
	p.Length, p.Segments = number(m[4], 10), number(m[5], 10)
	if m := packetHash.FindStringSubmatch(line); m != nil {
		p.Hash = uint32(number(m[1], 16))
	}
	if m := packetVLAN.FindStringSubmatch(line); m != nil {
		p.VLAN = uint16(number(m[1], 16))
	}
	if m := packetType.FindStringSubmatch(line); m != nil {
		p.HwType = strings.TrimSpace(m[1])
	}
	p.Flags = make(map[string]bool)
	return p, nil
}

// number reads digits that a pattern has already found to be digits; one too large for anything here is -1.
func number(digits string, base int) int {
	v, err := strconv.ParseInt(digits, base, 64)
	if err != nil {
		return -1
	}
	return int(v)
}
