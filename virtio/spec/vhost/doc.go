// Package vhost is the vhost-user protocol: how a driver gives its memory and its rings to a network device that runs in another
// process, over a unix socket. It is spoken by package virtio (the front end), by sim/vhostuser (the back end), by DPDK and by QEMU.
//
//	front end ── GET_FEATURES, SET_FEATURES …, answers to what asks ──► back end
//	             SET_MEM_TABLE with a descriptor for each region
//	             SET_VRING_NUM, ADDR, BASE, CALL, KICK, ENABLE for each queue
//	then both use the rings in the shared memory; KICK and CALL are eventfds, and the socket is silent
//
// A [Message] is a header of 12 bytes and a payload; descriptors travel beside it. [Conn] sends and receives messages; the structs
// with Append and Parse are the payloads. All fields are in the byte order of the machine, which is little-endian here. Whatever comes
// from the socket is checked: lengths, counts, sums of addresses. What the numbers mean is for the caller to judge.
//
// Specification: QEMU, docs/interop/vhost-user.rst, whose names are used.
package vhost
