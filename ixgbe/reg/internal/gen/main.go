// Command gen writes the files that are generated from the register table. It
// is run by `go generate ./ixgbe/reg`, in the directory of package reg.
package main

import (
	"fmt"
	"os"

	"bare.wire/ixgbe/reg/internal/render"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	src, err := render.Go()
	if err != nil {
		return err
	}
	if err := os.WriteFile("zregs.go", src, 0o644); err != nil {
		return fmt.Errorf("%w (run it by `go generate ./ixgbe/reg`)", err)
	}
	return os.WriteFile("../../docs/registers.md", render.Markdown(), 0o644)
}
