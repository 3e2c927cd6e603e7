// Package wire reads and writes packet headers: Ethernet with VLAN tags, ARP,
// IPv4, IPv6, UDP, TCP, ICMP for both, and the Internet checksum.
//
// A header is a named byte slice (IPv4, TCP, …) over bytes that belong to
// somebody else, usually an mbuf. ParseX checks every length once and returns
// the view together with what the header carries; after that the getters and
// setters only touch bytes that are there. A view must come from ParseX or
// PutX: a plain conversion of a short slice makes the getters panic. Views
// copy nothing and own nothing; they live as long as the bytes under them.
//
//	frame ──ParseEthernet──▶ Ethernet, payload ──ParseIPv4──▶ IPv4, payload ──ParseUDP──▶ UDP, payload
//	frame ──Parse──▶ Layers (offsets of all of these in one walk)
//
// PutX goes the other way: it writes a header at the start of the room the
// caller gives and returns the view of it, whose length is the room used. The
// next header goes into room[len(view):]. Lengths of what follows are given as
// PayloadLen, so that headers can be written front to back. X.Fields returns
// what PutX takes, and putting the fields of a parsed header gives the same
// bytes.
//
// A Sum is an unfinished ones' complement sum, a checksum is its complement;
// the two have different types so that they cannot be mixed up.
//
// All lengths are in bytes, without the Ethernet FCS. All input is taken to be
// hostile: no bytes can make a parser panic, loop, or return a view that
// reaches outside its input. Nothing here allocates; errors are made once, when
// the program starts, and errors.Is tells their kind: ErrTruncated,
// ErrMalformed, ErrTooDeep, ErrNoRoom, ErrRange or errors.ErrUnsupported.
//
// Formats: IEEE 802.3 clause 3 and 802.1Q clause 9; RFC 826 (ARP), 791 (IPv4),
// 8200 (IPv6), 768 (UDP), 9293 (TCP), 792 and 4443 (ICMP), 4861 (neighbour
// discovery), 1071 and 1624 (checksum).
package wire
