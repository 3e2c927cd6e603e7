package cli

import (
	"errors"
	"fmt"
	"testing"

	"bare.wire/device"
)

func TestACardThatCannotBeHadIsNoWrongUsage(t *testing.T) {
	bound := errors.New("0000:03:00.0 is bound to ixgbe: pktgen devices bind 0000:03:00.0")
	for _, c := range []struct {
		err  error
		want Code
	}{
		{bound, Usage},
		{fmt.Errorf("open: %w", &device.HostError{Err: bound}), Environment},
	} {
		if got := openCode(c.err); got != c.want {
			t.Errorf("%v: code %d, want %d", c.err, got, c.want)
		}
	}
}
