package wire

import "errors"

// The kinds of failure, to be tested with errors.Is. ARP for other networks
// than IPv4 over Ethernet wraps errors.ErrUnsupported instead.
var (
	// ErrTruncated: the bytes end before the header does, or before the length
	// that the header claims.
	ErrTruncated = errors.New("truncated")
	// ErrMalformed: a field has a value that its specification excludes.
	ErrMalformed = errors.New("malformed")
	// ErrTooDeep: more nested headers than are followed; see MaxIPv6Extensions.
	ErrTooDeep = errors.New("too many nested headers")
	// ErrNoRoom: the room given to a builder is shorter than what it writes.
	ErrNoRoom = errors.New("room too small; give PutX at least the header's length")
	// ErrRange: a value given to a builder does not fit its field.
	ErrRange = errors.New("value does not fit its field")
)

// A fault is an error that is made once and returned by address, so that a
// flood of bad packets costs no allocation. It says which header and which
// rule, and wraps the kind.
type fault struct {
	what string // header and rule, with its section
	kind error  // one of the kinds above
}

func (e *fault) Error() string { return "wire: " + e.what + ": " + e.kind.Error() }
func (e *fault) Unwrap() error { return e.kind }

func newFault(what string, kind error) error { return &fault{what, kind} }

var (
	errEthernetShort = newFault("Ethernet header needs 14 bytes (802.3 §3.2)", ErrTruncated)
	errVLANShort     = newFault("VLAN tag needs 4 bytes (802.1Q §9.6)", ErrTruncated)

	errARPShort = newFault("ARP packet for IPv4 over Ethernet needs 28 bytes (RFC 826)", ErrTruncated)
	errARPKind  = newFault("ARP packet is not IPv4 over Ethernet (RFC 826)", errors.ErrUnsupported)

	errIPv4Short    = newFault("IPv4 header needs 20 bytes (RFC 791 §3.1)", ErrTruncated)
	errIPv4Version  = newFault("IPv4 version field is not 4 (RFC 791 §3.1)", ErrMalformed)
	errIPv4IHL      = newFault("IPv4 header length is below 20 bytes (RFC 791 §3.1)", ErrMalformed)
	errIPv4Options  = newFault("IPv4 options reach past the packet (RFC 791 §3.1)", ErrTruncated)
	errIPv4TotalLow = newFault("IPv4 total length is shorter than the header (RFC 791 §3.1)", ErrMalformed)
	errIPv4Total    = newFault("IPv4 total length reaches past the packet (RFC 791 §3.1)", ErrTruncated)

	errIPv6Short     = newFault("IPv6 header needs 40 bytes (RFC 8200 §3)", ErrTruncated)
	errIPv6Version   = newFault("IPv6 version field is not 6 (RFC 8200 §3)", ErrMalformed)
	errIPv6Payload   = newFault("IPv6 payload length reaches past the packet (RFC 8200 §3)", ErrTruncated)
	errIPv6ExtShort  = newFault("IPv6 extension header reaches past the packet (RFC 8200 §4)", ErrTruncated)
	errIPv6ExtDeep   = newFault("IPv6 extension headers (RFC 8200 §4)", ErrTooDeep)
	errIPv6HopByHop  = newFault("IPv6 hop-by-hop options are not the first extension (RFC 8200 §4)", ErrMalformed)
	errIPv6FragChain = newFault("IPv6 first fragment ends inside its headers (RFC 7112 §5)", ErrTruncated)
	errIPv6NotExt    = newFault("protocol number is not an IPv6 extension header (RFC 8200 §4)", ErrRange)

	errUDPShort  = newFault("UDP header needs 8 bytes (RFC 768)", ErrTruncated)
	errUDPLow    = newFault("UDP length is below 8 (RFC 768)", ErrMalformed)
	errUDPLength = newFault("UDP length reaches past the packet (RFC 768)", ErrTruncated)

	errTCPShort   = newFault("TCP header needs 20 bytes (RFC 9293 §3.1)", ErrTruncated)
	errTCPOffset  = newFault("TCP data offset is below 20 bytes (RFC 9293 §3.1)", ErrMalformed)
	errTCPOptions = newFault("TCP options reach past the segment (RFC 9293 §3.1)", ErrTruncated)

	errOptionShort  = newFault("option has no length byte (RFC 9293 §3.2, RFC 791 §3.1)", ErrTruncated)
	errOptionLow    = newFault("option length is below 2 (RFC 9293 §3.2, RFC 791 §3.1)", ErrMalformed)
	errOptionLong   = newFault("option reaches past the header (RFC 9293 §3.2, RFC 791 §3.1)", ErrTruncated)
	errOptionLength = newFault("TCP option has the wrong length for its kind (RFC 9293 §3.2, RFC 7323, RFC 2018)", ErrMalformed)

	errICMPShort   = newFault("ICMP message needs 8 bytes (RFC 792)", ErrTruncated)
	errICMPv6Short = newFault("ICMPv6 message needs 8 bytes (RFC 4443 §2.1)", ErrTruncated)
	errPortsShort  = newFault("quoted transport header needs 4 bytes for its ports (RFC 792, RFC 4443 §3)", ErrTruncated)
	errNDPShort    = newFault("neighbour message needs 24 bytes (RFC 4861 §4.3)", ErrTruncated)
	errNDPKind     = newFault("ICMPv6 message is not a neighbour solicitation or advertisement (RFC 4861 §4)", errors.ErrUnsupported)
	errNDPOption   = newFault("neighbour discovery option has length 0 (RFC 4861 §4.6)", ErrMalformed)
	errNDPOptLong  = newFault("neighbour discovery option reaches past the message (RFC 4861 §4.6)", ErrTruncated)

	errEthernetRoom = newFault("Ethernet header (14 bytes)", ErrNoRoom)
	errVLANRoom     = newFault("VLAN tag (4 bytes)", ErrNoRoom)
	errARPRoom      = newFault("ARP packet (28 bytes)", ErrNoRoom)
	errIPv4Room     = newFault("IPv4 header (20 bytes and options)", ErrNoRoom)
	errIPv6Room     = newFault("IPv6 header (40 bytes)", ErrNoRoom)
	errIPv6FragRoom = newFault("IPv6 fragment header (8 bytes)", ErrNoRoom)
	errUDPRoom      = newFault("UDP header (8 bytes)", ErrNoRoom)
	errTCPRoom      = newFault("TCP header (20 bytes and options)", ErrNoRoom)
	errTCPOptRoom   = newFault("TCP options", ErrNoRoom)
	errICMPRoom     = newFault("ICMP header (8 bytes)", ErrNoRoom)
	errNDPRoom      = newFault("neighbour message (24 bytes)", ErrNoRoom)

	errIPv4PutOptions = newFault("IPv4 options must be a multiple of 4 and at most 40 bytes (RFC 791 §3.1)", ErrRange)
	errIPv4PutLength  = newFault("IPv4 total length must be below 65536; send several packets (RFC 791 §3.1)", ErrRange)
	errIPv4PutFrag    = newFault("IPv4 fragment offset must be a multiple of 8 below 65536, and flags 3 bits (RFC 791 §3.1)", ErrRange)
	errIPv6PutLength  = newFault("IPv6 payload length must be below 65536; send several packets (RFC 8200 §3)", ErrRange)
	errIPv6PutFlow    = newFault("IPv6 flow label has 20 bits (RFC 8200 §3)", ErrRange)
	errIPv6PutFrag    = newFault("IPv6 fragment offset must be a multiple of 8 below 65536 (RFC 8200 §4.5)", ErrRange)
	errUDPPutLength   = newFault("UDP length must be below 65536; send several datagrams (RFC 768)", ErrRange)
	errTCPPutOptions  = newFault("TCP options must be a multiple of 4 and at most 40 bytes (RFC 9293 §3.1)", ErrRange)
	errTCPPutFlags    = newFault("TCP flags have 12 bits (RFC 9293 §3.1)", ErrRange)
	errTCPPutSACK     = newFault("TCP options exceed 40 bytes; send fewer SACK blocks (RFC 2018 §3)", ErrRange)
	errNDPPutKind     = newFault("neighbour message type must be 135 or 136 (RFC 4861 §4)", ErrRange)

	errChainShort = newFault("checksum range reaches past the chain of segments", ErrTruncated)
	errChainRange = newFault("checksum range has a negative offset or length", ErrRange)
)
