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
	for _, f := range render.Files {
		data, err := f.Render()
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.Path, data, 0o644); err != nil {
			return fmt.Errorf("%w (run it by `go generate ./ixgbe/reg`)", err)
		}
	}
	return nil
}
