package reg

// counter is a row of a 32-bit counter that a read clears.
func counter(name string, off uint32, source, doc string) Reg {
	return def(name, at(off), RC, unknown, unknownReset, source, doc)
}

// counters is an array of them.
func counters(name string, banks []Bank, source, doc string) Reg {
	return def(name, banks, RC, unknown, unknownReset, source, doc)
}

// half is one half of a 36-bit counter.
func half(name string, banks []Bank, mode Mode, source, doc string) Reg {
	return def(name, banks, mode, unknown, unknownReset, source, doc)
}

// statistics are cleared by reading; read them all once at init (§4.6.5), and
// let one owner do it, or counts are lost.
var statistics = []Reg{
	counter("CRCERRS", 0x04000, srcHdr, "Packets with a bad FCS."),
	counter("ILLERRC", 0x04004, srcHdr, "Packets with illegal symbols."),
	counter("ERRBC", 0x04008, srcHdr, "Packets with error bytes."),
	counter("MSPDC", 0x04010, srcHdr, "Packets discarded as too short by the MAC."),
	counters("MPC", array(0x03FA0, 4, 8), srcHdr, "Packets missed because the packet buffer was full."),
	counter("MLFC", 0x04034, srcHdr, "Local faults."),
	counter("MRFC", 0x04038, srcHdr, "Remote faults."),
	counter("RLEC", 0x04040, srcHdr, "Packets whose length field is wrong."),
	counter("LXONTXC", 0x03F60, srcHdr, "XON frames sent."),
	counter("LXOFFTXC", 0x03F68, srcHdr, "XOFF frames sent."),
	counter("LXONRXCNT", 0x041A4, srcHdr, "XON frames received."),
	counter("LXOFFRXCNT", 0x041A8, srcHdr, "XOFF frames received."),
	counters("PXONTXC", array(0x03F00, 4, 8), srcDPDK, "Priority XON frames sent, per class."),
	counters("PXOFFTXC", array(0x03F20, 4, 8), srcDPDK, "Priority XOFF frames sent, per class."),
	counters("PXONRXCNT", array(0x04140, 4, 8), srcDPDK, "Priority XON frames received, per class."),
	counters("PXOFFRXCNT", array(0x04160, 4, 8), srcDPDK, "Priority XOFF frames received, per class."),
	counter("PRC64", 0x0405C, srcHdr, "Received packets of 64 bytes with FCS."),
	counter("PRC127", 0x04060, srcHdr, "Received packets of 65…127 bytes with FCS."),
	counter("PRC255", 0x04064, srcHdr, "Received packets of 128…255 bytes with FCS."),
	counter("PRC511", 0x04068, srcHdr, "Received packets of 256…511 bytes with FCS."),
	counter("PRC1023", 0x0406C, srcHdr, "Received packets of 512…1023 bytes with FCS."),
	counter("PRC1522", 0x04070, srcHdr, "Received packets of 1024 bytes or more with FCS."),
	counter("GPRC", 0x04074, srcHdr, "Good packets received. It also counts packets that are then missed (DPDK, 77889afaf1): add up QPRC instead."),
	counter("BPRC", 0x04078, srcHdr, "Broadcast packets received."),
	counter("MPRC", 0x0407C, srcHdr, "Multicast packets received."),
	counter("GPTC", 0x04080, srcHdr, "Good packets sent."),
	half("GORCL", at(0x04088), RC36Lo, srcHdr, "Good bytes received, with FCS; wraps in 55 s at 10 Gb/s."),
	half("GORCH", at(0x0408C), RC36Hi, srcHdr, "Good bytes received, top 4 bits."),
	half("GOTCL", at(0x04090), RC36Lo, srcHdr, "Good bytes sent, with FCS; wraps in 55 s at 10 Gb/s."),
	half("GOTCH", at(0x04094), RC36Hi, srcHdr, "Good bytes sent, top 4 bits."),
	counter("RUC", 0x040A4, srcHdr, "Received packets shorter than 64 bytes with a good FCS. Runts below 12 bytes are not counted (specification update, clarification 18)."),
	counter("RFC", 0x040A8, srcHdr, "Received fragments: shorter than 64 bytes with a bad FCS. Below 12 bytes not counted (specification update, clarification 18)."),
	counter("ROC", 0x040AC, srcHdr, "Received packets longer than allowed with a good FCS."),
	counter("RJC", 0x040B0, srcHdr, "Received packets longer than allowed with a bad FCS."),
	counter("MNGPRC", 0x040B4, srcHdr, "Packets received for management."),
	counter("MNGPDC", 0x040B8, srcHdr, "Packets for management that were dropped."),
	counter("MNGPTC", 0x0CF90, srcHdr, "Packets sent by management."),
	half("TORL", at(0x040C0), RC36Lo, srcHdr, "Bytes received in all packets, good and bad, with FCS."),
	half("TORH", at(0x040C4), RC36Hi, srcHdr, "Bytes received in all packets, top 4 bits."),
	counter("TPR", 0x040D0, srcHdr, "Packets received, good and bad."),
	counter("TPT", 0x040D4, srcHdr, "Packets sent."),
	counter("PTC64", 0x040D8, srcHdr, "Sent packets of 64 bytes with FCS."),
	counter("PTC127", 0x040DC, srcHdr, "Sent packets of 65…127 bytes with FCS."),
	counter("PTC255", 0x040E0, srcHdr, "Sent packets of 128…255 bytes with FCS."),
	counter("PTC511", 0x040E4, srcHdr, "Sent packets of 256…511 bytes with FCS."),
	counter("PTC1023", 0x040E8, srcHdr, "Sent packets of 512…1023 bytes with FCS."),
	counter("PTC1522", 0x040EC, srcHdr, "Sent packets of 1024 bytes or more with FCS."),
	counter("MPTC", 0x040F0, srcHdr, "Multicast packets sent."),
	counter("BPTC", 0x040F4, srcHdr, "Broadcast packets sent."),
	counter("XEC", 0x04120, srcHdr, "Received packets with a bad IPv4, TCP, UDP or SCTP checksum. Packets with UDP checksum 0 may be counted too (DPDK, 9a40edb599)."),
	counter("SSVPC", 0x08780, srcDPDK, "Sent packets stopped by the switch as spoofed."),
	counters("QPRC", array(0x01030, 0x40, 16), srcHdr, "Packets received, counter set n (see RQSMR)."),
	half("QBRC_L", array(0x01034, 0x40, 16), RC36Lo, srcHdr+"; mode: "+srcSnabb, "Bytes received, counter set n."),
	half("QBRC_H", array(0x01038, 0x40, 16), RC36Hi, srcHdr+"; mode: "+srcSnabb, "Bytes received, top 4 bits."),
	counters("QPRDC", array(0x01430, 0x40, 16), srcHdr, "Packets dropped for want of a descriptor, counter set n; counts with SRRCTL.DROP_EN."),
	counters("QPTC", array(0x06030, 0x40, 16), srcHdr+"; alias: "+srcSnabb, "Packets sent, counter set n (see TQSM).").
		alias(Bank{0x08680, 4, 16}),
	half("QBTC_L", array(0x08700, 8, 16), RC36Lo, srcHdr+"; mode: "+srcSnabb, "Bytes sent, counter set n."),
	half("QBTC_H", array(0x08704, 8, 16), RC36Hi, srcHdr+"; mode: "+srcSnabb, "Bytes sent, top 4 bits."),
	counter("RXNFGPC", 0x041B0, srcDPDK, "Good packets received before filtering."),
	half("RXNFGBCL", at(0x041B4), RC36Lo, srcDPDK, "Good bytes received before filtering."),
	half("RXNFGBCH", at(0x041B8), RC36Hi, srcDPDK, "Good bytes received before filtering, top 4 bits."),
	def("RXDSTATCTRL", at(0x02F40), RW, unknown, unknownReset, srcHdr, "Which queues the RXDGPC group counts."),
	counter("RXDGPC", 0x02F50, srcHdr, "Good packets that the receive DMA delivered."),
	half("RXDGBCL", at(0x02F54), RC36Lo, srcDPDK, "Good bytes that the receive DMA delivered."),
	half("RXDGBCH", at(0x02F58), RC36Hi, srcDPDK, "Good bytes that the receive DMA delivered, top 4 bits."),
	counter("TXDGPC", 0x087A0, srcHdr, "Good packets that the transmit DMA fetched."),
	half("TXDGBCL", at(0x087A4), RC36Lo, srcDPDK, "Good bytes that the transmit DMA fetched."),
	half("TXDGBCH", at(0x087A8), RC36Hi, srcDPDK, "Good bytes that the transmit DMA fetched, top 4 bits."),
	counter("FCOERPDC", 0x0241C, srcDPDK, "FCoE packets dropped."),
	counter("FCLAST", 0x02424, srcDPDK, "FCoE last error count."),
	counter("FCOEPRC", 0x02428, srcDPDK, "FCoE packets received."),
	counter("FCOEDWRC", 0x0242C, srcDPDK, "FCoE words received."),
	counter("FCCRC", 0x05118, srcDPDK, "FCoE packets with a good FCS and a bad FC CRC."),
	counter("FCOEPTC", 0x08784, srcDPDK, "FCoE packets sent."),
	counter("FCOEDWTC", 0x08788, srcDPDK, "FCoE words sent."),
}
