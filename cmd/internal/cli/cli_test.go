package cli

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestWhatWasProbablyMeant(t *testing.T) {
	cmd := &cobra.Command{Use: "pktgen"}
	cmd.Flags().String("duration", "", "")
	cmd.Flags().String("secret", "", "")
	require.NoError(t, cmd.Flags().MarkHidden("secret"))
	for typed, want := range map[string]string{
		"unknown flag: --durations":          "unknown flag --durations; did you mean --duration?",
		"unknown flag: --dur":                "unknown flag --dur; did you mean --duration?",
		"unknown flag: --secre":              "unknown flag --secre; see pktgen --help",
		"unknown flag: --xyz":                "unknown flag --xyz; see pktgen --help",
		"flag needs an argument: --duration": "flag needs an argument: --duration; see pktgen --help",
	} {
		require.EqualError(t, FlagError(cmd, errors.New(typed), ""), want)
	}
	require.EqualError(t, FlagError(cmd, errors.New("unknown flag: --xyz"), "it is late"), "unknown flag --xyz; it is late; see pktgen --help")
}

func TestEditsIsTheLevenshteinDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"rate", "rate", 0}, {"rat", "rate", 1}, {"kitten", "sitting", 3}} {
		if got := edits(c.a, c.b); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
