//go:build guest

package dpdk

import (
	"testing"

	"bare.wire/test/guest"
)

// TestGuestTestpmd puts one card, joined to the host by a TAP interface, under testpmd.
func TestGuestTestpmd(t *testing.T) {
	guest.Run(t, machine(t, "tap:"+tapName), func(t *testing.T) {
		b := start(t, 1)
		t.Log(b.Since(0))
		for _, c := range checks {
			t.Run(c.name, func(t *testing.T) {
				if err := c.run(b); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run("misuse", func(t *testing.T) {
			all, err := b.misuse(0)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range all {
				t.Error(m)
			}
		})
	})
}
