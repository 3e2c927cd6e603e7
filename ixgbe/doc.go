// Package ixgbe drives the Intel 82599 10 GbE controller from user space.
//
// The driver sees a PCI function ([pci.Function]), real or software, and a bus address space ([vtop.Space]) in which its
// rings and everybody's buffers lie. It touches registers to start, stop and count, and otherwise memory only:
//
//	             descriptors                         buffers
//	Recv  ◀── status written back by the card  ◀── frame written by the card
//	Send  ──▶ address and length for the card  ──▶ frame read by the card
//
// A burst costs one look at a descriptor for each frame and one register write, the doorbell (RDT, TDT).
//
// # The files, in the order in which a frame meets them
//
//	port.go        Open, Start, Stop, Close: the life of a port
//	reset.go       reset and what may be believed after it (datasheet §4.6.3)
//	link.go        link bring-up (§4.6.4)
//	initrx.go      receive path (§4.6.7), RSS (rss.go), filters (filter.go)
//	inittx.go      transmit path (§4.6.8)
//	ring.go        descriptor rings (§7.1.6, §7.2.3)
//	rx.go, tx.go   Recv and Send: the hot path
//	rxoffload.go, txoffload.go  checksums, tags, segmentation (§7.1.11, §7.2.4, §7.2.5)
//	interrupt.go   Arm and what wakes a sleeper (§7.3)
//	stats.go       counters that clear when read, and those of 36 bits (§8.2.3.23)
//	stop.go        how every buffer comes back, or is kept out of reach
//
// Sections (§) are those of the Intel 82599 10 GbE Controller Datasheet, document 331520; registers come from package reg,
// which has the sources.
//
// It has never run on silicon. What it has run on is package sim/nic82599.
package ixgbe
