package reg_test

import (
	"testing"
	"testing/quick"

	"bare.wire/ixgbe/reg"
)

func mustReg(t *testing.T, name string) *reg.Reg {
	t.Helper()
	r, ok := reg.ByName(name)
	if !ok {
		t.Fatalf("no register %s", name)
	}
	return r
}

// TestCardCanActOnModes asks the questions that a software card asks.
func TestCardCanActOnModes(t *testing.T) {
	for _, c := range []struct {
		reg  string
		mode reg.Mode
		want uint32
	}{
		{"CTRL", reg.SC, reg.CTRL_RST | reg.CTRL_LNK_RST},
		{"CTRL", reg.RW, ^(reg.CTRL_RST | reg.CTRL_LNK_RST)},
		{"STATUS", reg.RO, 0xFFFFFFFF},
		{"SWSM", reg.RS, reg.SWSM_SMBI},
		{"EERD", reg.RO, reg.EERD_DONE | reg.EERD_DATA},
		{"RDRXCTL", reg.RO, reg.RDRXCTL_DMAIDONE},
		{"GPRC", reg.RC, 0xFFFFFFFF},
		{"GPRC", reg.SC, 0},
		{"GORCL", reg.RC36Lo, 0xFFFFFFFF},
		{"LINKS", reg.LL, reg.LINKS_STICKY_UP},
		{"LINKS", reg.RO, ^reg.LINKS_STICKY_UP},
		{"WUC", reg.W1C, reg.WUC_PME_STATUS},
		{"AUTOC", reg.SC, reg.AUTOC_AN_RESTART},
		{"RXDCTL", reg.SC, reg.RXDCTL_SWFLSH},
	} {
		if got := mustReg(t, c.reg).Bits(c.mode); got != c.want {
			t.Errorf("%s.Bits(%v) = %08X, want %08X", c.reg, c.mode, got, c.want)
		}
	}
}

func TestWriteMaskSaysWhetherItIsKnown(t *testing.T) {
	for _, c := range []struct {
		reg   string
		mask  uint32
		known bool
	}{
		{"RDBAL", 0xFFFFFF80, true},
		{"RDLEN", 0x000FFF80, true},
		{"RDT", 0x0000FFFF, true},
		{"RAH", 0x8000FFFF, true},
		{"FCRTL", 0x8007FFF0, true},
		{"STATUS", 0, true},
		{"GPRC", 0, true},
		{"EERD", ^(reg.EERD_DONE | reg.EERD_DATA), false},
		{"CTRL", 0xFFFFFFFF, false},
	} {
		mask, known := mustReg(t, c.reg).WriteMask()
		if mask != c.mask || known != c.known {
			t.Errorf("%s.WriteMask() = %08X, %v; want %08X, %v", c.reg, mask, known, c.mask, c.known)
		}
	}
}

func TestResetValueIsKnownForSomeIndicesOnly(t *testing.T) {
	r := mustReg(t, "RXPBSIZE")
	if v, known := r.ResetValue(0); v != 512<<10 || !known {
		t.Errorf("RXPBSIZE(0) = %X, %v; want 512 KiB", v, known)
	}
	if v, known := r.ResetValue(1); v != 0 || known {
		t.Errorf("RXPBSIZE(1) = %X, %v; want it unknown", v, known)
	}
	if got := r.Reset.String(); got != "00080000 for n<1, else unknown" {
		t.Errorf("printed as %q", got)
	}
	if v, known := mustReg(t, "CTRL").ResetValue(0); v != 0 || known {
		t.Errorf("CTRL = %X, %v; want it unknown", v, known)
	}
}

func TestUnknownIsPrintedAsSuch(t *testing.T) {
	if got := (reg.Mask{}).String(); got != "unknown" {
		t.Errorf("mask printed as %q", got)
	}
	if got := (reg.Reset{}).String(); got != "unknown" {
		t.Errorf("reset value printed as %q", got)
	}
	if got := reg.Mode(200).String(); got != "Mode(200)" {
		t.Errorf("mode printed as %q", got)
	}
}

func TestGetUndoesPut(t *testing.T) {
	for name, r := range map[string]uint32{"BSIZEPKT": reg.SRRCTL_BSIZEPKT, "DESCTYPE": reg.SRRCTL_DESCTYPE, "MFS": reg.MAXFRS_MFS, "RST": reg.CTRL_RST} {
		err := quick.Check(func(v, x uint32) bool {
			width := reg.Get(r, r)
			w := reg.Put(v, r, x)
			return reg.Get(w, r) == x&width && w&^r == v&^r
		}, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := quick.Check(func(v, x uint64) bool {
		w := reg.Put64(v, reg.TXD_PAYLEN, x)
		return reg.Get64(w, reg.TXD_PAYLEN) == x&0x3FFFF && w&^reg.TXD_PAYLEN == v&^reg.TXD_PAYLEN
	}, nil)
	if err != nil {
		t.Error(err)
	}
}
