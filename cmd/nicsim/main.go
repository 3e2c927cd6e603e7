// Command nicsim offers software network cards to others.
//
//	nicsim qemu -- qemu-system-x86_64 ...   an Intel 82599 in a virtual machine
//	nicsim vhost-user /run/nic.sock         a virtio-net device for DPDK, QEMU or pktgen
//
// "nicsim qemu --help" lists the flags; docs/qemu.md and docs/vhost-user.md are guides. Packages sim/qemu and sim/vhostuser say how
// it works.
package main

import (
	"os"

	"bare.wire/cmd/nicsim/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
