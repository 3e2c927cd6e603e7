// Package linux has the Linux kernel judge the software 82599: Debian's ixgbe driver, unmodified, in a guest whose card is
// the model, against the host's own kernel behind a TAP interface.
//
// The driver's offline self-test writes patterns into registers and reads them back, adds up the EEPROM, makes interrupts
// and loops frames back; sockets of the guest's kernel carry streams whose SHA-256 the host's kernel has to agree with; and
// the driver's statistics are compared with what the card has done (nic82599.Counts). The other way round, each of the
// model's named faults is put into the card of a running guest, and a judge has to notice (TestGuestFaultsAreNoticed).
//
//	guest                                                   host, in a network namespace of its own
//	sockets ─ kernel ─ ixgbe ─ nic82599 (nicsim) ─ tap0 ─── kernel ─ TCP and UDP servers
//	                                                  └──── packet socket: tagged frames, raw frames, what segments look like
//	ethtool ioctls; questions (guest.Ask) ────────────────► nicsim's control socket: counts, faults, link
//
// The tests are for a guest: build tag guest, `make guest`.
package linux
