// Package cli is what the command lines of pktgen and nicsim have in common: how they answer what was typed wrong.
package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError makes of an error that cobra found in the flags of cmd one that says what to do: it names the flag that was probably
// meant. hint, which may be empty, goes with an unknown flag that resembles none.
func FlagError(cmd *cobra.Command, err error, hint string) error {
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	}
	best, distance := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := edits(name, f.Name)
		if strings.HasPrefix(f.Name, name) {
			d = min(d, 1)
		}
		if d < distance && !f.Hidden {
			best, distance = f.Name, d
		}
	})
	if best != "" {
		return fmt.Errorf("unknown flag --%s; did you mean --%s?", name, best)
	}
	if hint != "" {
		hint += "; "
	}
	return fmt.Errorf("unknown flag --%s; %ssee %s --help", name, hint, cmd.CommandPath())
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
