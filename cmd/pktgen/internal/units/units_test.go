package units

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

func ExampleParseRate() {
	r, _ := ParseRate("100%")
	num, den, _ := r.PerSecond(64, 10e9)
	fmt.Println(num/den, "frames/s of 64 B on 10 Gb/s")
	_, err := ParseRate("10000")
	fmt.Println(err)
	// Output:
	// 14880952 frames/s of 64 B on 10 Gb/s
	// rate "10000": the unit is missing; did you mean 10000pps? write 10kpps, 1Mpps, 1Gbps (wire bits), 1GbpsL2 (frame with FCS), 37.5% or max
}

func TestRatesAreExactRatiosOfFramesASecond(t *testing.T) {
	const link = 10_000_000_000
	for _, c := range []struct {
		word  string
		size  int
		want  string // exact ratio
		floor uint64
	}{
		{"10kpps", 64, "10000/1", 10_000},
		{"1Mpps", 64, "1000000/1", 1_000_000},
		{"1e6pps", 64, "1000000/1", 1_000_000},
		{"1_000pps", 64, "1000/1", 1000},
		{"0.5pps", 64, "1/2", 0},
		{"1.5kpps", 1518, "1500/1", 1500},
		{"10Gbps", 64, "10000000000/672", 14_880_952},
		{"10Gbps", 1518, "10000000000/12304", 812_743},
		{"10gbps", 64, "10000000000/672", 14_880_952},
		{"100%", 64, "10000000000/672", 14_880_952},
		{"37.5%", 64, "3750000000/672", 5_580_357},
		{"1GbpsL2", 64, "1953125/1", 1_953_125},
		{"1Gbit/s", 64, "1000000000/672", 1_488_095},
		{"33.333333333%", 64, "3333333333300/672000", 4_960_317},
	} {
		r, err := ParseRate(c.word)
		if err != nil {
			t.Fatalf("%s: %v", c.word, err)
		}
		num, den, err := r.PerSecond(c.size, link)
		if err != nil {
			t.Fatalf("%s: %v", c.word, err)
		}
		want, _ := new(big.Rat).SetString(c.want)
		got := new(big.Rat).SetFrac(new(big.Int).SetUint64(num), new(big.Int).SetUint64(den))
		if got.Cmp(want) != 0 || num/den != c.floor {
			t.Errorf("%s at %d B: %s = %d pps, want %s = %d", c.word, c.size, got, num/den, want, c.floor)
		}
	}
}

func TestRateErrorsSayWhatWasMeant(t *testing.T) {
	for word, want := range map[string]string{
		"":                "a number is missing",
		"fast":            "a number is missing",
		"10":              "did you mean 10pps",
		"10kpsp":          "unknown unit",
		"1mpps":           "did you mean M",
		"5Xpps":           "no multiplier",
		"5k%":             "no multiplier",
		"0pps":            "is zero",
		"101%":            "more than 100%",
		"1e40pps":         "exponent",
		"99999999999Gbps": "too large",
		"1.0123456789pps": "9 digits",
		"-1pps":           "is negative",
		"0":               "nothing would be sent",
	} {
		_, err := ParseRate(word)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", word, err, want)
		}
	}
	r, _ := ParseRate("10%")
	if _, _, err := r.PerSecond(64, 0); err == nil || !strings.Contains(err.Error(), "link's speed is not known") {
		t.Errorf("per cent without a link: %v", err)
	}
	if _, _, err := (Rate{Kind: Max}).PerSecond(64, 1); err == nil {
		t.Error("max gave a ratio")
	}
}

func TestRateWritesItselfAsItIsRead(t *testing.T) {
	for _, word := range []string{"10kpps", "1Mpps", "1.5Mpps", "1Gbps", "999pps", "0.5pps", "1GbpsL2", "37.5%", "max"} {
		r, err := ParseRate(word)
		if err != nil || r.String() != word {
			t.Errorf("%q reads as %q (%v)", word, r, err)
		}
	}
}

// The table of RFC 2544 appendix B and of the reference, extended to faster links.
func TestLineRatesOfTheCommonSizes(t *testing.T) {
	table := map[int][]uint64{ // size: 1, 10, 25, 40, 100 Gb/s
		64:   {1488095, 14880952, 37202380, 59523809, 148809523},
		128:  {844594, 8445945, 21114864, 33783783, 84459459},
		256:  {452898, 4528985, 11322463, 18115942, 45289855},
		512:  {234962, 2349624, 5874060, 9398496, 23496240},
		1024: {119731, 1197318, 2993295, 4789272, 11973180},
		1280: {96153, 961538, 2403846, 3846153, 9615384},
		1518: {81274, 812743, 2031859, 3250975, 8127438},
	}
	for size, row := range table {
		for i, gbit := range []uint64{1, 10, 25, 40, 100} {
			if got := LineRate(size, gbit*1e9); got != row[i] {
				t.Errorf("%d B at %d Gb/s: %d, want %d", size, gbit, got, row[i])
			}
		}
	}
}

func TestCountsSizesDurations(t *testing.T) {
	for word, want := range map[string]uint64{"0": 0, "1000": 1000, "1e6": 1e6, "10M": 1e7, "2.5k": 2500,
		"18446744073709551615": 1<<64 - 1} {
		if got, err := Count(word); err != nil || got != want {
			t.Errorf("count %q = %d, %v", word, got, err)
		}
	}
	for word, want := range map[string]string{"": "missing", "1.5": "whole number", "5 frames": "multiplier",
		"18446744073709551616": "too large", "1e30": "too large", "-3": "negative"} {
		if _, err := Count(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("count %q: %v", word, err)
		}
	}
	for word, want := range map[string]int{"64": 64, "1518": 1518, "9728": 9728} {
		if got, err := Size(word); err != nil || got != want {
			t.Errorf("size %q = %d, %v", word, got, err)
		}
	}
	for word, want := range map[string]string{"60": "did you mean 64", "63": "out of range", "9729": "out of range",
		"imix": "not supported yet", "64,128": "not supported yet", "64-1518": "not supported yet", "-64": "out of range", "big": "whole number"} {
		if _, err := Size(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("size %q: %v, want %q", word, err, want)
		}
	}
	for word, want := range map[string]time.Duration{"0": 0, "10s": 10 * time.Second, "1m30s": 90 * time.Second} {
		if got, err := Duration(word); err != nil || got != want {
			t.Errorf("duration %q = %v, %v", word, got, err)
		}
	}
	for word, want := range map[string]string{"10": "did you mean 10s", "-1s": "negative", "soon": "not understood",
		"1000000h": "longer"} {
		if _, err := Duration(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("duration %q: %v, want %q", word, err, want)
		}
	}
}

func TestAddressesPortsTags(t *testing.T) {
	if a, err := IP("::ffff:198.18.0.1"); err != nil || !a.Is4() {
		t.Errorf("mapped address: %v %v", a, err)
	}
	for word, want := range map[string]string{"198.18.0": "no IP address", "10.0.0.0/24": "not supported yet",
		"10.0.0.1-10.0.0.9": "not supported yet", "fe80::1%eth0": "zone"} {
		if _, err := IP(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("address %q: %v, want %q", word, err, want)
		}
	}
	for _, word := range []string{"", "-1", "65536", "http"} {
		if _, err := Port(word); err == nil {
			t.Errorf("port %q accepted", word)
		}
	}
	for _, word := range []string{"", "02:00:00:00:00", "02:00:00:00:00:00:00:00", "zz:00:00:00:00:01"} {
		if _, err := MAC(word); err == nil {
			t.Errorf("MAC %q accepted", word)
		}
	}
	for word, want := range map[string]VLAN{"100": {100, 0}, "100:5": {100, 5}, "0:7": {0, 7}, "4094": {4094, 0}} {
		got, err := ParseVLAN(word)
		if err != nil || got != want || got.String() != word {
			t.Errorf("VLAN %q = %v, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "4095", "100:8", "100:", "a", "100:5:6"} {
		if _, err := ParseVLAN(word); err == nil {
			t.Errorf("VLAN %q accepted", word)
		}
	}
}

// Whatever is read: no panic, and what is accepted keeps its value when written and read again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"10kpps", "1.5Gbps", "37.5%", "1GbpsL2", "max", "1e19pps", "1_0pps", "100:5", "64", "10s", "18446744073709551615"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		Count(s)
		Size(s)
		Duration(s)
		IP(s)
		Port(s)
		MAC(s)
		ParseVLAN(s)
		r, err := ParseRate(s)
		if err != nil || r.Kind == Max {
			return
		}
		num, den, err := r.PerSecond(64, 10e9)
		if err == nil && (den == 0 || num == 0) {
			t.Fatalf("%q: %d/%d", s, num, den)
		}
		if again, err := ParseRate(r.String()); err == nil && again != r {
			t.Fatalf("%q wrote %q and reads %v", s, r.String(), again)
		}
	})
}

func TestLimitsAreExact(t *testing.T) {
	for _, c := range []struct {
		word     string
		n, total uint64
		want     bool
	}{
		{"0", 0, 100, true}, {"0", 1, 100, false}, {"12", 12, 100, true}, {"12", 13, 100, false},
		{"0%", 0, 0, true}, {"0.1%", 1, 1000, true}, {"0.1%", 1, 999, false}, {"100%", 1 << 63, 1 << 63, true},
		{"50%", 1<<63 + 1, 1<<64 - 1, false},
	} {
		l, err := ParseLimit(c.word)
		if err != nil || l.Allows(c.n, c.total) != c.want || l.String() != c.word {
			t.Errorf("%s allows %d of %d: %v, %v", c.word, c.n, c.total, !c.want, err)
		}
	}
	for word, want := range map[string]string{"": "missing", "0.1": "did you mean 0.1%", "1e-3": "not understood", "-1": "negative", "1%%": "not understood", "200%": "more than all"} {
		if _, err := ParseLimit(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("limit %q: %v, want %q", word, err, want)
		}
	}
}
