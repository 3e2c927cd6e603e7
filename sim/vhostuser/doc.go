// Package vhostuser is the back end of vhost-user: it offers a software virtio-net device ([virtionet.Device]) to another
// process over a unix socket. That process, the front end, is DPDK's virtio_user, a QEMU with -netdev vhost-user, or package
// virtio's own driver.
//
//	front end ── messages ──► Session ── features, rings, status ──► virtionet.Device ──► Net (a wire, a TAP, …)
//	          ── memory ────► Memory ◄── rings and frames, by guest addresses ───────────┘
//	          ── kick eventfds ──► Device.Kick;  Device.OnCall ──► call eventfds ──► front end
//
// The front end's memory is mapped from the descriptors that it sends; the device reaches no other. Nothing that the front
// end says is believed: regions are checked against their files, addresses against the regions, and a front end that breaks
// the protocol, or takes away memory that it has shared, ends its own session with an error that says what it did, and
// nothing else. Sessions follow one another on one socket; one at a time, for there is one device.
//
// Idle, a session sleeps on its descriptors in Go's poller. While there is traffic, the world's steps look at the rings
// themselves, and the front end is asked not to kick.
//
// Specification: QEMU, docs/interop/vhost-user.rst.
package vhostuser
