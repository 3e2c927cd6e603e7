package reg_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"bare.wire/ixgbe/reg"
)

// headerName is what this package calls a name of the public headers; shift is
// where the header's 32-bit word begins in a descriptor's 64-bit word.
type headerName struct {
	name  string
	shift int
}

var headerNames = map[string]headerName{
	"SRRCTL_DESCTYPE_MASK":  {name: "SRRCTL_DESCTYPE"},
	"LINKS_SPEED_82599":     {name: "LINKS_SPEED"},
	"MRQC_RSSEN":            {name: "MRQC_MRQE_RSS"},
	"DCA_TXCTRL_82599":      {name: "DCA_TXCTRL"},
	"I2CCTL_82599":          {name: "I2CCTL"},
	"FCRTL_82599":           {name: "FCRTL"},
	"FCRTH_82599":           {name: "FCRTH"},
	"RXDADV_ERR_IPE":        {name: "RXD_IPE"},
	"RXDADV_ERR_TCPE":       {name: "RXD_L4E"},
	"RXDADV_ERR_RXE":        {name: "RXD_RXE"},
	"ADVTXD_DTYP_DATA":      {name: "TXD_DTYP_DATA"},
	"ADVTXD_DTYP_CTXT":      {name: "TXC_DTYP_CTXT"},
	"ADVTXD_DCMD_EOP":       {name: "TXD_EOP"},
	"ADVTXD_DCMD_IFCS":      {name: "TXD_IFCS"},
	"ADVTXD_DCMD_RS":        {name: "TXD_RS"},
	"ADVTXD_DCMD_DEXT":      {name: "TXD_DEXT"},
	"ADVTXD_DCMD_VLE":       {name: "TXD_VLE"},
	"ADVTXD_DCMD_TSE":       {name: "TXD_TSE"},
	"ADVTXD_CC":             {name: "TXD_CC", shift: 32},
	"ADVTXD_PAYLEN_SHIFT":   {name: "TXD_PAYLEN_Shift", shift: 32},
	"ADVTXD_POPTS_IXSM":     {name: "TXD_IXSM", shift: 32},
	"ADVTXD_POPTS_TXSM":     {name: "TXD_TXSM", shift: 32},
	"ADVTXD_TUCMD_IPV4":     {name: "TXC_IPV4"},
	"ADVTXD_TUCMD_L4T_TCP":  {name: "TXC_L4T_TCP"},
	"ADVTXD_TUCMD_L4T_SCTP": {name: "TXC_L4T_SCTP"},
	"ADVTXD_L4LEN_SHIFT":    {name: "TXC_L4LEN_Shift", shift: 32},
	"ADVTXD_MSS_SHIFT":      {name: "TXC_MSS_Shift", shift: 32},
	"ADVTXD_MACLEN_SHIFT":   {name: "TXC_MACLEN_Shift"},
	"ADVTXD_VLAN_SHIFT":     {name: "TXC_VLAN_Shift"},
}

// lookup returns what this package has for a header's name such as
// "IXGBE_RDT(3)".
func (h headerName) lookup(index int) (uint64, error) {
	if index >= 0 {
		f, ok := functions[h.name]
		if !ok {
			return 0, fmt.Errorf("no function %s", h.name)
		}
		return uint64(f(index)), nil
	}
	v, ok := constants[h.name]
	if !ok {
		return 0, fmt.Errorf("no constant %s", h.name)
	}
	switch {
	case h.shift == 0:
		return v, nil
	case strings.HasSuffix(h.name, "_Shift"):
		return v - uint64(h.shift), nil
	}
	return v >> h.shift, nil
}

// lines calls f with the words of each line of a test file that is no comment.
func lines(t *testing.T, file string, f func(words []string)) {
	t.Helper()
	r, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := bufio.NewScanner(r)
	for s.Scan() {
		words := strings.Fields(s.Text())
		if len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			f(words)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

func number(t *testing.T, s string, base int) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestHeadersAgree compares every name of the public headers with the table.
func TestHeadersAgree(t *testing.T) {
	n := 0
	lines(t, "testdata/headers.txt", func(words []string) {
		n++
		name, index := strings.TrimPrefix(words[0], "IXGBE_"), -1
		if open := strings.IndexByte(name, '('); open >= 0 {
			index = int(number(t, name[open+1:len(name)-1], 10))
			name = name[:open]
		}
		h, ok := headerNames[name]
		if !ok {
			h = headerName{name: name}
		}
		got, err := h.lookup(index)
		if err != nil {
			t.Errorf("%s: %v", words[0], err)
			return
		}
		for _, w := range words[1:] {
			if want := number(t, w, 0); got != want {
				t.Errorf("%s is %X in the headers, %s is %X here", words[0], want, h.name, got)
			}
		}
	})
	if n != 285 {
		t.Errorf("%d names, want 285", n)
	}
}

// TestWhatLinuxTouchesIsDescribed follows Linux's driver from probe to
// self-test.
func TestWhatLinuxTouchesIsDescribed(t *testing.T) {
	n := 0
	lines(t, "testdata/linux-probe.txt", func(words []string) {
		n++
		off := uint32(number(t, words[0], 16))
		r, _, ok := reg.Lookup(off)
		if !ok {
			t.Errorf("%05X (%s) is not described", off, strings.Join(words[1:], " "))
			return
		}
		// What is written with effect cannot be read-only; the self-test writes STATUS on purpose.
		if words[2] != "w0" && r.Mode == reg.RC {
			t.Errorf("Linux writes %s, which is RC here", reg.Name(off))
		}
	})
	if n < 1000 {
		t.Errorf("only %d offsets", n)
	}
}
