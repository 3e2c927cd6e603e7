package wire

import "strconv"

// Proto is what an IPv4 packet or the last IPv6 header carries: a protocol
// number, which IPv6 calls Next Header.
type Proto uint8

// The numbers that this package knows by name.
const (
	ProtoHopByHop    Proto = 0 // IPv6 extension, RFC 8200 §4.3
	ProtoICMP        Proto = 1
	ProtoIGMP        Proto = 2
	ProtoTCP         Proto = 6
	ProtoUDP         Proto = 17
	ProtoRouting     Proto = 43 // IPv6 extension, RFC 8200 §4.4
	ProtoFragment    Proto = 44 // IPv6 extension, RFC 8200 §4.5
	ProtoGRE         Proto = 47
	ProtoESP         Proto = 50 // what follows is encrypted, RFC 4303
	ProtoAH          Proto = 51 // an extension in IPv6, RFC 4302
	ProtoICMPv6      Proto = 58
	ProtoNoNext      Proto = 59 // nothing follows, RFC 8200 §4.7
	ProtoDestOptions Proto = 60 // IPv6 extension, RFC 8200 §4.6
	ProtoSCTP        Proto = 132
	ProtoMobility    Proto = 135 // IPv6 extension, RFC 6275 §6.1
)

// String is the name where there is one, else the number.
func (p Proto) String() string {
	switch p {
	case ProtoHopByHop:
		return "hop-by-hop"
	case ProtoICMP:
		return "ICMP"
	case ProtoIGMP:
		return "IGMP"
	case ProtoTCP:
		return "TCP"
	case ProtoUDP:
		return "UDP"
	case ProtoRouting:
		return "routing"
	case ProtoFragment:
		return "fragment"
	case ProtoGRE:
		return "GRE"
	case ProtoESP:
		return "ESP"
	case ProtoAH:
		return "AH"
	case ProtoICMPv6:
		return "ICMPv6"
	case ProtoNoNext:
		return "none"
	case ProtoDestOptions:
		return "destination options"
	case ProtoSCTP:
		return "SCTP"
	case ProtoMobility:
		return "mobility"
	}
	return strconv.Itoa(int(p))
}
