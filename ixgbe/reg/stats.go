package reg

import "slices"

// Kind says what a counter counts.
type Kind uint8

// The kinds of counter.
const (
	Packets  Kind = iota // packets; 32 bits, wraps in 288 s at 14.88 million a second
	BytesFCS             // bytes with FCS; 36 bits, wraps in 55 s at 10 Gb/s
	Bytes                // bytes as they crossed the bus: of received frames without an FCS or tag that was stripped; 36 bits
	Events               // something that is no packet, such as a link fault
)

var kindNames = [...]string{Packets: "packets", BytesFCS: "bytes with FCS", Bytes: "bytes on the bus", Events: "events"}

// String returns the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Class says what a counter is good for.
type Class uint8

// The classes of counter.
const (
	ClassRx          Class = iota // received and good
	ClassTx                       // sent
	ClassRxError                  // received and bad; these add up to the receive errors
	ClassRxMissed                 // lost for want of packet buffer
	ClassRxDropped                // lost for want of a descriptor
	ClassSize                     // by size of packet
	ClassFlowControl              // pause frames
	ClassOther                    // none of the above, or counted elsewhere already
)

var classNames = [...]string{
	ClassRx: "received", ClassTx: "sent", ClassRxError: "receive error", ClassRxMissed: "missed",
	ClassRxDropped: "dropped", ClassSize: "size", ClassFlowControl: "flow control", ClassOther: "other",
}

// String returns the class in words.
func (c Class) String() string { return classNames[c] }

// Stat is one statistic and the register, or the pair of registers, that feeds
// it. All of them are cleared by reading; an array gives one value per index.
type Stat struct {
	Name  string // in snake case, unique
	Reg   string // the register, or the low half of a 36-bit pair
	High  string // the high half, else empty; read after Reg
	Kind  Kind
	Class Class
	Doc   string
}

// Stats returns every statistic. The slice is the caller's.
func Stats() []Stat { return slices.Clone(stats) }

var stats = []Stat{
	{"rx_packets", "GPRC", "", Packets, ClassOther, "Good packets, and missed ones with them: use the sum of rx_queue_packets."},
	{"rx_bytes", "GORCL", "GORCH", BytesFCS, ClassOther, "Good bytes; use the sum of rx_queue_bytes."},
	{"rx_broadcast", "BPRC", "", Packets, ClassOther, "Broadcast packets among the good."},
	{"rx_multicast", "MPRC", "", Packets, ClassOther, "Multicast packets among the good."},
	{"rx_all_packets", "TPR", "", Packets, ClassOther, "All packets, bad ones too."},
	{"rx_all_bytes", "TORL", "TORH", BytesFCS, ClassOther, "All bytes, of bad packets too."},
	{"rx_queue_packets", "QPRC", "", Packets, ClassRx, "Packets by counter set."},
	{"rx_queue_bytes", "QBRC_L", "QBRC_H", Bytes, ClassRx, "Bytes by counter set."},
	{"rx_queue_dropped", "QPRDC", "", Packets, ClassRxDropped, "No descriptor, by counter set; counts with DROP_EN."},
	{"rx_missed", "MPC", "", Packets, ClassRxMissed, "Packet buffer full, by traffic class."},
	{"rx_crc_errors", "CRCERRS", "", Packets, ClassRxError, "Bad FCS."},
	{"rx_illegal_symbols", "ILLERRC", "", Packets, ClassRxError, "Illegal symbols."},
	{"rx_error_bytes", "ERRBC", "", Packets, ClassRxError, "Error bytes."},
	{"rx_mac_short", "MSPDC", "", Packets, ClassRxError, "Too short for the MAC."},
	{"rx_length_errors", "RLEC", "", Packets, ClassRxError, "Wrong length field."},
	{"rx_undersize", "RUC", "", Packets, ClassRxError, "Short, good FCS."},
	{"rx_fragments", "RFC", "", Packets, ClassRxError, "Short, bad FCS."},
	{"rx_oversize", "ROC", "", Packets, ClassRxError, "Long, good FCS."},
	{"rx_jabber", "RJC", "", Packets, ClassOther, "Long, bad FCS: counted as CRC errors already."},
	{"rx_checksum_errors", "XEC", "", Packets, ClassOther, "Bad checksums; not errors, as packets with UDP checksum 0 may be among them."},
	{"local_faults", "MLFC", "", Events, ClassOther, "Local faults."},
	{"remote_faults", "MRFC", "", Events, ClassOther, "Remote faults."},
	{"rx_64", "PRC64", "", Packets, ClassSize, "Received, 64 bytes with FCS."},
	{"rx_65_127", "PRC127", "", Packets, ClassSize, "Received, 65…127 bytes with FCS."},
	{"rx_128_255", "PRC255", "", Packets, ClassSize, "Received, 128…255 bytes with FCS."},
	{"rx_256_511", "PRC511", "", Packets, ClassSize, "Received, 256…511 bytes with FCS."},
	{"rx_512_1023", "PRC1023", "", Packets, ClassSize, "Received, 512…1023 bytes with FCS."},
	{"rx_1024_up", "PRC1522", "", Packets, ClassSize, "Received, 1024 bytes and more with FCS."},
	{"rx_xon", "LXONRXCNT", "", Packets, ClassFlowControl, "XON received."},
	{"rx_xoff", "LXOFFRXCNT", "", Packets, ClassFlowControl, "XOFF received."},
	{"tx_xon", "LXONTXC", "", Packets, ClassFlowControl, "XON sent."},
	{"tx_xoff", "LXOFFTXC", "", Packets, ClassFlowControl, "XOFF sent."},
	{"tx_packets", "GPTC", "", Packets, ClassTx, "Good packets."},
	{"tx_bytes", "GOTCL", "GOTCH", BytesFCS, ClassTx, "Good bytes."},
	{"tx_broadcast", "BPTC", "", Packets, ClassOther, "Broadcast packets among them."},
	{"tx_multicast", "MPTC", "", Packets, ClassOther, "Multicast packets among them."},
	{"tx_all_packets", "TPT", "", Packets, ClassOther, "All packets."},
	{"tx_queue_packets", "QPTC", "", Packets, ClassOther, "Packets by counter set."},
	{"tx_queue_bytes", "QBTC_L", "QBTC_H", Bytes, ClassOther, "Bytes by counter set."},
	{"tx_64", "PTC64", "", Packets, ClassSize, "Sent, 64 bytes with FCS."},
	{"tx_65_127", "PTC127", "", Packets, ClassSize, "Sent, 65…127 bytes with FCS."},
	{"tx_128_255", "PTC255", "", Packets, ClassSize, "Sent, 128…255 bytes with FCS."},
	{"tx_256_511", "PTC511", "", Packets, ClassSize, "Sent, 256…511 bytes with FCS."},
	{"tx_512_1023", "PTC1023", "", Packets, ClassSize, "Sent, 512…1023 bytes with FCS."},
	{"tx_1024_up", "PTC1522", "", Packets, ClassSize, "Sent, 1024 bytes and more with FCS."},
	{"dma_rx_packets", "RXDGPC", "", Packets, ClassOther, "Delivered by the receive DMA."},
	{"dma_tx_packets", "TXDGPC", "", Packets, ClassOther, "Fetched by the transmit DMA."},
	{"mng_rx_packets", "MNGPRC", "", Packets, ClassOther, "Received for management."},
	{"mng_rx_dropped", "MNGPDC", "", Packets, ClassOther, "Received for management and dropped."},
	{"mng_tx_packets", "MNGPTC", "", Packets, ClassOther, "Sent by management."},
}
