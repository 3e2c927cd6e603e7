// Package frontend has DPDK judge our vhost-user front end: the driver of package virtio drives net_vhost, a back end of others, over a
// socket and shared memory, on this machine and without a virtual machine. Every frame is numbered, its contents are checked when it
// comes back, in its order, on its queue; both sides count, and their counts have to agree.
//
//	test ── nic.Port ── virtio ── vhost-user Transport ══ socket, shared memory ══ net_vhost ── testpmd
//
// The tests have the build tag interop, and need dpdk-testpmd (22.11).
package frontend
