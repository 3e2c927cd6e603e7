package faulttable

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatNobodyNoticedIsSaid(t *testing.T) {
	var table Table
	table.Ran("tx-checksum", "io", nil)
	table.Ran("tx-checksum", "csum", errors.New("frame 3 differs\nand more"))
	table.Ran("eics", "io", nil)
	assert.Equal(t, []string{"eics"}, table.Unnoticed())
	assert.Equal(t, `fault × judge: DPDK caught 1 of 2
  tx-checksum        caught by csum; passed by io
                       frame 3 differs
  eics               NOT CAUGHT; passed by io
`, table.Text("DPDK"))
}
