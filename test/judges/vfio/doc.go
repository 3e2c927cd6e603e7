// Package vfio holds the tests in which the drivers meet a real kernel: its VFIO, its IOMMU, its interrupts, huge pages and
// processes, in a virtual machine with two software 82599s in slots 4 and 5 (nicsim qemu, package sim/qemu).
//
//	host                                      guest
//	go test ──▶ nicsim ──▶ QEMU ────────────▶ the same test ──▶ device, ixgbe, pci ──▶ vfio-pci ──▶ cards
//	    Answer ──▶ nicsim's control socket ◀── ask: misuse? DMA? link off, card out
//
// The tests are chosen by the build tag guest and run by `make guest`; there is nothing here besides.
package vfio
