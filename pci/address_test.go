package pci

import (
	"strings"
	"testing"
)

func TestAddressesAreReadAndWrittenBack(t *testing.T) {
	for text, want := range map[string]string{
		"0000:03:00.0":     "0000:03:00.0",
		"03:00.0":          "0000:03:00.0",
		"0000:FF:1F.7":     "0000:ff:1f.7",
		"10000:00:01.1":    "10000:00:01.1", // domains of VMD are beyond 16 bits
		"ffffffff:00:00.0": "ffffffff:00:00.0",
	} {
		a, err := ParseAddress(text)
		if err != nil || a.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, a, err, want)
		}
	}
}

func TestWhatIsNoAddressIsRefused(t *testing.T) {
	for _, text := range []string{
		"", ":", "::.", "0000:03:00", "0000:03:00.", "0000:03:00.8", "0000:03:20.0", "0000:3:00.0", "0000:03:0.0", "00:03:00.0",
		"0000:03:00.00", "0000:003:00.0", "0x00:03:00.0", "0000:+3:00.0", "0000:-3:00.0", "0000:03:00.0\n", " 0000:03:00.0",
		"00000:03:00.0", "0fff00:03:00.0", "00010000:03:00.0", "100000000:03:00.0", "0000:03:00.0/..", "../../etc", "0000:03:00.0.1", "0000:03:00:0.0", "0_00:03:00.0", strings.Repeat("a", 1000),
	} {
		if a, err := ParseAddress(text); err == nil {
			t.Errorf("%q was taken for %s", text, a)
		} else if len(err.Error()) > 250 {
			t.Errorf("%.20q...: the error is %d bytes long", text, len(err.Error()))
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"0000:03:00.0", "03:00.0", "ffffffff:ff:1f.7", "00000:00:00.0", "0FFF00:03:00.0", "::", "a:b:c.d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		b, err := ParseAddress(a.String())
		if err != nil || a != b {
			t.Fatalf("%q is %s, which is read as %s, %v", s, a, b, err)
		}
		if !strings.HasSuffix(a.String(), strings.ToLower(s)) {
			t.Fatalf("%q is %s", s, a)
		}
	})
}
