// Command pktgen sends frames through a network card, counts what comes back, and says how far the figures can be trusted.
//
//	pktgen run                        ten seconds between two software cards; needs no card and no root
//	pktgen run -r 1Mpps -s 512 sim:   the same, faster and with longer frames
//
// "pktgen run --help" lists the flags. The result goes to standard output, everything else to standard error; the exit code
// says how it ended (package cli).
package main

import (
	"os"

	"bare.wire/cmd/pktgen/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
