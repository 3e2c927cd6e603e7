// Package reg describes the registers and descriptors of the Intel 82599
// (10 GbE controller, "ixgbe") once, as a table.
//
// Everything else that needs to know a register takes it from here:
//
//	table_*.go, desc.go, const.go      the table, written by hand
//	  ├── zregs.go                     constants and offset functions, generated
//	  ├── docs/registers.md            the same table for people, generated
//	  ├── Lookup, Reg.Bits             what a software card and a register dump run on
//	  └── Stats, Devices               what the statistics and the device list run on
//
// After a change to the table run `go generate ./ixgbe/reg`; a test fails while
// a generated file is stale.
//
// # Names
//
// A register is a constant (CTRL) or, when there are many of it, a function of
// its index (RDT(n)) with the number of them beside it (RDT_Count). An index
// outside 0 ≤ n < Count is a programming error and panics. Fields are masks in
// place (CTRL_RST, SRRCTL_BSIZEPKT), fields of several bits have a shift
// (SRRCTL_BSIZEPKT_Shift), and named values are in place too
// (MRQC_MRQE_RSS), so that they can be or-ed together. Get and Put move a value
// out of and into a field.
//
// Descriptor fields are uint64 masks within the 64-bit word that their comment
// names: RXD_ for the receive descriptor as written back, TXD_ for the advanced
// data descriptor, TXC_ for the context descriptor.
//
// # What is not known
//
// The writable mask and the reset value of a register are given only where a
// source says so; elsewhere they are Unknown and are printed as "unknown". A
// guess would be believed.
//
// # Sources
//
// Section numbers (§) are those of the Intel 82599 10 GbE Controller Datasheet,
// document 331520; "specification update" is document 331521. Register sections
// (§8.2.3…) are as Barrelfish cites them, from the datasheet's revision 2.6. Offsets and bit
// positions were compared between the public headers of DPDK, Intel's Linux
// driver and ixy; see Source in each row and the legend in docs/registers.md.
package reg

// The tag leaves zregs.go out, so that a bad one cannot keep itself from being
// replaced.
//
//go:generate go run -tags regtable ./internal/gen
