package reg

import "slices"

// DescSize is the size of every descriptor in bytes: two little-endian 64-bit
// words, w0 and w1.
const DescSize = 16

// DescField is a field of one of a descriptor's two words. Lo and Hi count
// within that word, 0…63.
type DescField struct {
	Word int
	Field
}

// Desc is the layout of one kind of descriptor. Its fields are generated as
// uint64 masks named Name_Field.
type Desc struct {
	Name   string
	Doc    string
	Source string
	Fields []DescField
}

// Descs returns every descriptor layout. The slice is the caller's; the fields
// are shared and must not be changed.
func Descs() []Desc { return slices.Clone(descs) }

// w0 and w1 place a field in a word.
func w0(f Field) DescField { return DescField{Word: 0, Field: f} }
func w1(f Field) DescField { return DescField{Word: 1, Field: f} }

var descs = []Desc{
	{
		Name:   "RXR",
		Doc:    "Receive descriptor as software writes it. An unused one should have an address that faults in w0 and 0 in w1.",
		Source: srcHdr + "; " + srcDS,
		Fields: []DescField{
			w0(field("PKT_ADDR", 63, 0, "Bus address of the packet buffer.")),
			w1(field("HDR_ADDR", 63, 0, "Bus address of the header buffer, 0 without header split. Its bit 0 lies where the card later writes DD, so it must be 0.")),
		},
	},
	{
		Name:   "RXD",
		Doc:    "Receive descriptor as the card writes it back. Valid once DD is set.",
		Source: srcHdr + "; " + srcDPDK,
		Fields: []DescField{
			w0(field("RSSTYPE", 3, 0, "What the RSS hash covers.",
				val("NONE", 0, "no hash"), val("TCP4", 1, "TCP over IPv4"), val("IP4", 2, "IPv4"), val("TCP6", 3, "TCP over IPv6"),
				val("IP6EX", 4, "IPv6 with extensions"), val("IP6", 5, "IPv6"), val("TCP6EX", 6, "TCP over IPv6 with extensions"),
				val("UDP4", 7, "UDP over IPv4"), val("UDP6", 8, "UDP over IPv6"), val("UDP6EX", 9, "UDP over IPv6 with extensions"))),
			w0(field("PTYPE", 15, 4, "Packet type, all bits.")),
			w0(bit("PT_IPV4", 4, "IPv4.")),
			w0(bit("PT_IPV4_OPTS", 5, "IPv4 with options.")),
			w0(bit("PT_IPV6", 6, "IPv6.")),
			w0(bit("PT_IPV6_EXT", 7, "IPv6 with extensions.")),
			w0(bit("PT_TCP", 8, "TCP.")),
			w0(bit("PT_UDP", 9, "UDP.")),
			w0(bit("PT_SCTP", 10, "SCTP.")),
			w0(bit("PT_NFS", 11, "NFS.")),
			w0(bit("PT_ESP", 12, "IPsec ESP.")),
			w0(bit("PT_AH", 13, "IPsec AH.")),
			w0(bit("PT_LINKSEC", 14, "LinkSec.")),
			w0(bit("PT_ETQF", 15, "An ethertype filter matched; then bits 6:4 are its index.")),
			w0(field("PT_ETQF_INDEX", 6, 4, "Index of the ethertype filter, with PT_ETQF.")),
			w0(field("RSCCNT", 20, 17, "Packets coalesced, less one.")),
			w0(field("HDRLEN", 30, 21, "Header length with header split.")),
			w0(bit("SPH", 31, "The header was split off.")),
			w0(field("RSSHASH", 63, 32, "RSS hash.")),
			w0(field("FDIR_HASH", 47, 32, "With FLM: hash of the flow director filter.")),
			w0(field("FDIR_ID", 63, 48, "With FLM: software index of the filter.")),
			w0(field("IP_ID", 47, 32, "With RXCSUM.PCSD clear: IP id.")),
			w0(field("FRAG_CSUM", 63, 48, "With RXCSUM.PCSD clear: fragment checksum.")),
			w1(bit("DD", 0, "The card is done with the descriptor.")),
			w1(bit("EOP", 1, "Last buffer of the packet.")),
			w1(bit("FLM", 2, "A flow director filter matched.")),
			w1(bit("VP", 3, "A VLAN tag was found (and stripped with RXDCTL.VME).")),
			w1(bit("UDPCS", 4, "UDP checksum was checked.")),
			w1(bit("L4CS", 5, "TCP, UDP or SCTP checksum was checked.")),
			w1(bit("IPCS", 6, "IPv4 header checksum was checked.")),
			w1(bit("PIF", 7, "Passed by an inexact filter.")),
			w1(bit("VEXT", 9, "Outer VLAN tag found.")),
			w1(bit("UDPV", 10, "The UDP checksum field is not 0.")),
			w1(bit("LLINT", 11, "Caused a low-latency interrupt.")),
			w1(bit("TSIP", 15, "Time stamp in the buffer.")),
			w1(bit("TS", 16, "Time stamp taken.")),
			w1(bit("SECP", 17, "Went through the security engine.")),
			w1(bit("LB", 18, "Came from a local pool.")),
			w1(field("STATUS", 19, 0, "All status bits.")),
			w1(field("NEXTP", 19, 4, "Without EOP, when coalescing: next descriptor of the packet.")),
			w1(field("FDIRERR", 22, 20, "Flow director error: length, drop, collision.")),
			w1(bit("HBO", 23, "Header buffer too small.")),
			w1(bit("CE", 24, "Bad FCS.")),
			w1(bit("LE", 25, "Length error.")),
			w1(bit("PE", 27, "Packet error.")),
			w1(bit("OSE", 28, "Oversize.")),
			w1(bit("USE", 29, "Undersize.")),
			w1(bit("RXE", 29, "Any MAC error: the 82599's meaning of this bit.")),
			w1(bit("L4E", 30, "L4 checksum is bad.")),
			w1(bit("IPE", 31, "IPv4 header checksum is bad; for a fragment check again before dropping (erratum 66).")),
			w1(field("ERRORS", 31, 20, "All error bits.")),
			w1(field("LEN", 47, 32, "Bytes in this buffer.")),
			w1(field("VLAN", 63, 48, "VLAN tag, host order, with VP.")),
		},
	},
	{
		Name:   "TXD",
		Doc:    "Advanced transmit data descriptor. The card writes back the upper half of w1 only, with DD, when RS is set and subject to WTHRESH.",
		Source: srcHdr + "; " + srcDPDK,
		Fields: []DescField{
			w0(field("ADDR", 63, 0, "Bus address of the data.")),
			w1(field("DTALEN", 15, 0, "Bytes of data, at most 15.5 KiB; 0 hangs the queue.")),
			w1(bit("MAC_LINKSEC", 18, "LinkSec.")),
			w1(bit("MAC_TSTAMP", 19, "Take a time stamp.")),
			w1(field("DTYP", 23, 20, "Kind.", val("CTXT", 2, "context"), val("DATA", 3, "data"))),
			w1(bit("EOP", 24, "Last descriptor of the packet.")),
			w1(bit("IFCS", 25, "Append the FCS.")),
			w1(bit("RS", 27, "Report status; on EOP descriptors only.")),
			w1(bit("DEXT", 29, "Advanced descriptor.")),
			w1(bit("VLE", 30, "Insert the context's VLAN tag.")),
			w1(bit("TSE", 31, "Segment as the context says.")),
			w1(bit("DD", 32, "Written back: done.")),
			w1(field("IDX", 38, 36, "Which of the queue's contexts.")),
			w1(bit("CC", 39, "Check the context; IDX counts.")),
			w1(bit("IXSM", 40, "Insert the IPv4 header checksum.")),
			w1(bit("TXSM", 41, "Insert the L4 checksum.")),
			w1(bit("IPSEC", 42, "IPsec.")),
			w1(field("PAYLEN", 63, 46, "Bytes of the whole packet without FCS; with TSE: of the L4 payload.")),
		},
	},
	{
		Name:   "TXC",
		Doc:    "Transmit context descriptor. The 82599 keeps two for each queue (IDX 0 and 1); a context stays until it is overwritten.",
		Source: srcHdr + "; " + srcDPDK,
		Fields: []DescField{
			w0(field("IPLEN", 8, 0, "IP header length in bytes.")),
			w0(field("MACLEN", 15, 9, "Link header length in bytes.")),
			w0(field("VLAN", 31, 16, "VLAN tag to insert.")),
			w0(field("IPSEC_SA", 41, 32, "IPsec entry.")),
			w1(field("ESP_LEN", 8, 0, "IPsec ESP length.")),
			w1(bit("SNAP", 9, "SNAP header.")),
			w1(bit("IPV4", 10, "IPv4; 0: IPv6.")),
			w1(field("L4T", 12, 11, "L4 protocol.", val("UDP", 0, ""), val("TCP", 1, ""), val("SCTP", 2, ""))),
			w1(field("DTYP", 23, 20, "Kind.", val("CTXT", 2, "context"))),
			w1(bit("DEXT", 29, "Advanced descriptor.")),
			w1(field("IDX", 38, 36, "Which of the queue's contexts.")),
			w1(field("L4LEN", 47, 40, "L4 header length in bytes.")),
			w1(field("MSS", 63, 48, "L4 payload bytes of each segment.")),
		},
	},
}
