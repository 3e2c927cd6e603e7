// Command nicsim offers software network cards to others.
//
//	nicsim qemu -- qemu-system-x86_64 ...   an Intel 82599 in a virtual machine
//
// "nicsim qemu --help" lists the flags; docs/qemu.md is a guide. Package sim/qemu says how it works.
package main

import (
	"os"

	"bare.wire/cmd/nicsim/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
