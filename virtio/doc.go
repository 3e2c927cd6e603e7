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
// Specification: Virtual I/O Device (VIRTIO) Version 1.2; vhost-user as QEMU documents it (docs/interop/vhost-user.rst).
package virtio
