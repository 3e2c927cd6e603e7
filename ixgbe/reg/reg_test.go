package reg_test

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"testing"

	"bare.wire/ixgbe/reg"
	"bare.wire/ixgbe/reg/internal/render"
)

func TestGeneratedFilesFollowTheTable(t *testing.T) {
	for _, f := range render.Files {
		want, err := f.Render()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run `go generate ./ixgbe/reg`", f.Path)
		}
	}
}

// TestOneRegisterOneOffset lays every bank and alias out in the register space.
func TestOneRegisterOneOffset(t *testing.T) {
	taken := map[uint32]string{}
	for _, r := range reg.All() {
		for _, b := range append(append([]reg.Bank{}, r.Banks...), r.Aliases...) {
			for k := range b.Count {
				off := b.Off + uint32(k)*b.Stride
				if off%4 != 0 || off >= reg.BARSize {
					t.Fatalf("%s: offset %05X is no register of the BAR", r.Name, off)
				}
				if other, ok := taken[off]; ok {
					t.Errorf("%05X is %s and %s", off, other, r.Name)
				}
				taken[off] = r.Name
			}
		}
	}
	for off := uint32(0); off < reg.BARSize; off++ {
		r, _, ok := reg.Lookup(off)
		if name, described := taken[off]; ok != described || ok && r.Name != name {
			t.Fatalf("Lookup(%05X) = %v, %v; the table has %q", off, r, ok, name)
		}
	}
}

func TestLookupInvertsOffset(t *testing.T) {
	for _, r := range reg.All() {
		for n := range r.Count() {
			off, ok := r.Offset(n)
			if !ok {
				t.Fatalf("%s has no offset for index %d of %d", r.Name, n, r.Count())
			}
			if f, ok := functions[r.Name]; ok && f(n) != off {
				t.Errorf("%s(%d) = %05X, the table has %05X", r.Name, n, f(n), off)
			}
			got, index, ok := reg.Lookup(off)
			if !ok || got.Name != r.Name || index != n {
				t.Errorf("Lookup(%05X) = %v(%d), %v; want %s(%d)", off, got, index, ok, r.Name, n)
			}
		}
		if _, ok := r.Offset(r.Count()); ok {
			t.Errorf("%s has an offset for index %d, one too many", r.Name, r.Count())
		}
		if _, ok := r.Offset(-1); ok {
			t.Errorf("%s has an offset for index -1", r.Name)
		}
		if got, ok := reg.ByName(r.Name); !ok || got.Name != r.Name {
			t.Errorf("ByName(%q) = %v, %v", r.Name, got, ok)
		}
	}
}

func TestAliasesLeadToTheSameRegisters(t *testing.T) {
	for _, c := range []struct {
		off  uint32
		want string
	}{
		{0x1014, "SRRCTL(0)"}, {0x1014 + 15*0x40, "SRRCTL(15)"}, {0x1414, "SRRCTL(16)"}, {0xD014, "SRRCTL(64)"},
		{0x100C + 7*0x40, "DCA_RXCTRL(7)"},
		{0xA200, "RAL(0)"}, {0xA204 + 15*8, "RAH(15)"}, {0xA280, "RAL(16)"},
		{0xEC80, "MRQC"}, {0xEB00 + 31*4, "RETA(31)"}, {0xEB80 + 9*4, "RSSRK(9)"},
		{0xEA00 + 15*4, "PSRTYPE(15)"}, {0xEA40, "PSRTYPE(16)"}, {0x8680 + 15*4, "QPTC(15)"},
		{0x12300, "EITR(24)"}, {0xD018, "RDT(64)"}, {0xDFD8, "RDT(127)"},
		{0x00004, "register 00004"}, {0x00001, "register 00001"}, {0xFFFFFFFF, "register FFFFFFFF"},
	} {
		if got := reg.Name(c.off); got != c.want {
			t.Errorf("Name(%05X) = %q, want %q", c.off, got, c.want)
		}
	}
}

func TestRowsAreComplete(t *testing.T) {
	names, used := map[string]bool{}, map[string]bool{}
	for _, r := range reg.All() {
		if r.Name == "" || r.Group == "" || r.Doc == "" || r.Source == "" || r.Mode == reg.ModeOfReg || r.Count() == 0 {
			t.Errorf("%s: the row lacks its name, group, doc, source, mode or offsets", r.Name)
		}
		if names[r.Name] {
			t.Errorf("%s is described twice", r.Name)
		}
		names[r.Name] = true
		sources(t, r.Name, r.Source, used)
		fieldsFit(t, &r, used)
	}
	for _, c := range reg.Consts() {
		if c.Doc == "" || c.Source == "" || c.Group == "" {
			t.Errorf("%s lacks its doc, source or group", c.Name)
		}
		sources(t, c.Name, c.Source, used)
	}
	for _, s := range reg.Sources() {
		if !used[s.Name] {
			t.Errorf("%q is in the legend, but no row comes from it", s.Name)
		}
	}
}

// fieldsFit checks the fields of one register: in range, not over one another,
// values that fit, and a mask within them.
func fieldsFit(t *testing.T, r *reg.Reg, used map[string]bool) {
	t.Helper()
	var union uint32
	for i := range r.Fields {
		f := &r.Fields[i]
		name := r.Name + "." + f.Name
		if f.Lo > f.Hi || f.Hi > 31 || f.Doc == "" {
			t.Errorf("%s: bits %d:%d, doc %q", name, f.Hi, f.Lo, f.Doc)
			continue
		}
		if union&f.Mask() != 0 {
			t.Errorf("%s lies over another field", name)
		}
		union |= f.Mask()
		valuesFit(t, name, f)
		if f.Source != "" {
			sources(t, name, f.Source, used)
		}
	}
	if r.Mask.Known && len(r.Fields) > 0 && r.Mask.Value&^union != 0 {
		t.Errorf("%s: mask %s has bits outside its fields %08X", r.Name, r.Mask, union)
	}
	if r.Mask.Known && r.Reset.Known && r.Reset.Value&^union != 0 && len(r.Fields) > 0 {
		t.Errorf("%s: reset value %s has bits outside its fields", r.Name, r.Reset)
	}
}

func valuesFit(t *testing.T, name string, f *reg.Field) {
	t.Helper()
	seen := map[uint32]bool{}
	for _, v := range f.Values {
		if bits.Len32(v.V) > int(f.Hi-f.Lo)+1 {
			t.Errorf("%s: value %s = %X does not fit", name, v.Name, v.V)
		}
		if seen[v.V] {
			t.Errorf("%s: value %X has two names", name, v.V)
		}
		seen[v.V] = true
	}
}

// sources checks that each part of a source is a word of the legend, perhaps
// with the place in it, and marks it as used.
func sources(t *testing.T, name, source string, used map[string]bool) {
	t.Helper()
	for part := range strings.SplitSeq(source, "; ") {
		if _, after, ok := strings.Cut(part, ": "); ok {
			part = after
		}
		if strings.HasPrefix(part, "as ") {
			continue
		}
		known := false
		for _, s := range reg.Sources() {
			if part == s.Name || strings.HasPrefix(part, s.Name+" §") || strings.HasPrefix(part, s.Name+" clarification ") {
				known = true
				used[s.Name] = true
			}
		}
		if !known {
			t.Errorf("%s: source %q is not in the legend", name, part)
		}
	}
}

func TestDescriptorFieldsFit(t *testing.T) {
	for _, d := range reg.Descs() {
		for i := range d.Fields {
			f := &d.Fields[i]
			name := d.Name + "." + f.Name
			if f.Word != 0 && f.Word != 1 || f.Lo > f.Hi || f.Hi > 63 || f.Doc == "" {
				t.Errorf("%s: word %d, bits %d:%d, doc %q", name, f.Word, f.Hi, f.Lo, f.Doc)
			}
			if f.Hi-f.Lo < 32 {
				valuesFit(t, name, &f.Field)
			}
		}
	}
}

// TestRangesEndWhereTheyShould pins the counts that come from the datasheet,
// against a table that lost a bank.
func TestRangesEndWhereTheyShould(t *testing.T) {
	for name, want := range map[string]int{
		"RDT": 128, "RDBAL": 128, "SRRCTL": 128, "DCA_RXCTRL": 128, "RXDCTL": 128, "TDT": 128, "TXDCTL": 128,
		"EITR": 129, "IVAR": 64, "RAL": 128, "RAH": 128, "MTA": 128, "VFTA": 128, "RETA": 32, "RSSRK": 10,
		"PSRTYPE": 64, "QPRC": 16, "QBTC_H": 16, "RQSMR": 32, "TQSM": 32, "MPC": 8, "RXPBSIZE": 8,
	} {
		r, ok := reg.ByName(name)
		if !ok || r.Count() != want || constants[name+"_Count"] != uint64(want) {
			t.Errorf("%s: %v of them, want %d", name, r, want)
		}
	}
}

func TestIndexOutsideTheArrayPanics(t *testing.T) {
	for _, n := range []int{-1, 128, 1 << 40} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "RDT") {
					t.Errorf("RDT(%d): recovered %v, want a panic that names RDT", n, r)
				}
			}()
			reg.RDT(n)
		}()
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	got := testing.AllocsPerRun(100, func() {
		for off := uint32(0); off < 0x2000; off += 4 {
			reg.Lookup(off)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestSlicesAreTheCallers(t *testing.T) {
	reg.All()[0].Name = "scribbled"
	reg.Stats()[0].Name = "scribbled"
	reg.Devices()[0].Name = "scribbled"
	if reg.All()[0].Name == "scribbled" || reg.Stats()[0].Name == "scribbled" || reg.Devices()[0].Name == "scribbled" {
		t.Error("the table itself was handed out")
	}
}

func FuzzLookup(f *testing.F) {
	for _, off := range []uint32{0, 4, 0x1018, 0xD018, 0x12300, 0x1FFFC, reg.BARSize, 1, 0xFFFFFFFC, 0xA27C} {
		f.Add(off)
	}
	f.Fuzz(func(t *testing.T, off uint32) {
		r, n, ok := reg.Lookup(off)
		if !ok {
			if r != nil {
				t.Fatalf("Lookup(%08X): not ok, but %s", off, r.Name)
			}
			return
		}
		if off >= reg.BARSize || off%4 != 0 {
			t.Fatalf("Lookup(%08X) = %s", off, r.Name)
		}
		first, ok := r.Offset(n)
		if !ok {
			t.Fatalf("Lookup(%08X) = %s(%d), which has no offset", off, r.Name, n)
		}
		if back, m, _ := reg.Lookup(first); back != r || m != n {
			t.Fatalf("%08X is %s(%d), whose first offset %08X is %s(%d)", off, r.Name, n, first, back.Name, m)
		}
	})
}
