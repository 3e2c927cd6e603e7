// Package virtio drives virtio network devices: those of QEMU and of clouds over PCI, modern or legacy, and those of a vhost-user
// back end over a unix socket. It implements nic.Port.
//
//	nic.Port ── Port ── negotiation, control queue, link, statistics
//	             │
//	             ├── rxQueue, txQueue ── split or packed ring ── memory shared with the device
//	             │
//	             └── Transport ── modern PCI │ legacy PCI │ vhost-user
//
// A frame lies in the ring as a header ([spec.HdrSize] bytes) and the bytes of its buffers. On its way out the header is put
// in front of the frame, into the headroom of its first buffer, or into memory of the ring's own where that buffer is shared.
// On its way in the device writes header and frame into one buffer.
//
// The device is not trusted: whatever it writes into a ring is checked before it is used as an index or a length, and one that
// breaks the rules is not used any more; the error, which wraps nic.ErrGone, says what it did.
//
// # The files, in the order in which a frame meets them
//
//	port.go, start.go    Open, Start: the life of a port (specification §3.1.1)
//	negotiate.go         which features are taken, and why (§2.2, §5.1.3)
//	config.go, rss.go    what the device says of itself, and what it can be asked for (§5.1.4)
//	control.go           commands, and how long they may take (§5.1.6.5); filter.go, link.go use them
//	queue.go             a ring as the queues see it; split.go, packed.go: the two kinds (§2.7, §2.8)
//	rx.go, tx.go         Recv and Send: the hot path; header.go, offload.go: what goes in front of a frame (§5.1.6)
//	interrupt.go         what wakes a sleeper; served.go: what says that a device does not do its work
//	stop.go, gone.go     how every buffer comes back, or is kept out of reach
//	transport.go         what a transport is; modern.go, legacy.go, vhost.go: the three (§4.1; vhost-user)
//
// Specification: Virtual I/O Device (VIRTIO) Version 1.2; vhost-user as QEMU documents it (docs/interop/vhost-user.rst).
package virtio
