// Package dpdk has DPDK judge the software 82599: Debian's testpmd, with DPDK's own ixgbe poll-mode driver, unmodified, runs in a
// guest and drives the card through vfio-pci and the guest's IOMMU.
//
//	host, in a network of its own                            guest
//	exchange: frames sent, frames expected ─▶ TAP ─▶ card ─▶ testpmd forwards, changes or prints them
//	          what comes back, byte by byte ◀─ TAP ◀─ card ◀─┘
//
// The test in the guest tells testpmd what to do and asks the host for traffic; both halves make the same frames from the same few
// parameters (traffic_test.go). Three sides count: the host, the card and testpmd. The same checks then have to notice faults that
// are put into the card on purpose (faults_guest_test.go).
//
// `make guest GUESTPKG=./test/judges/dpdk/` runs it, with BAREWIRE_FULL=1 all of it; `make mutants` prints the table of faults.
package dpdk
