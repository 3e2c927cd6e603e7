// Package backend has DPDK judge our vhost-user back end: its virtio_user, a front end of others, drives sim/virtionet behind a
// socket of sim/vhostuser, on this machine and without a virtual machine. Every frame is numbered and its contents are checked on
// its way back; both sides count, and their counts have to agree.
//
//	source, checker ── virtionet.Net ── Device ── vhostuser.Backend ══ socket, shared memory ══ virtio_user ── testpmd
//
// The tests have the build tag interop, and need dpdk-testpmd (22.11).
package backend
