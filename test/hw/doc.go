// Package hw runs the driver's conformance suite (package nictest) on one port of one card in MAC loopback, and writes a
// report that the card's owner can send in: `make hw PCI=ADDR`.
//
//	nictest ──▶ A, the side that sends ────▶ the port's TX ─┐
//	                                                        │ HLREG0.LPBK: inside the card, before the line
//	nictest ◀── B, the side that receives ◀─ the port's RX ◀┘
//
// Every Start is with loopback: nothing is to go out on the wire, no cable and no partner are needed.
//
// Without PCI the same tests run on a software card on a virtual clock, which is how they are tried here. The environment:
//
//	PCI     the card's address, 0000:03:00.0
//	ACCESS  vfio (default), noiommu or sysfs, see docs/devices.md
//	REPORT  the report's file; default barewire-hw-ADDR.txt in the current directory
package hw
