package pci

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

// configOf82599 is the configuration space of a card with the capabilities of an 82599 (datasheet §9.2.2).
func configOf82599() []byte {
	c := make([]byte, ConfigSizeMax)
	put := func(off int, b ...byte) {
		for i, v := range b {
			c[off+i] = v
		}
	}
	put(configStatus, statusCapabilities)
	put(configCapabilities, 0x40)
	put(0x40, CapPowerManagement, 0x50)
	put(0x50, CapMSI, 0x70)
	put(0x70, CapMSIX, 0xa0, 63, 0x80, 4, 0, 0, 0, 4, 0x20, 0, 0)
	put(0xa0, CapExpress, 0)
	binary.LittleEndian.PutUint32(c[0xa4:], 1<<28)       // FLR
	binary.LittleEndian.PutUint32(c[0xac:], 8<<4|2)      // x8, 5 GT/s
	binary.LittleEndian.PutUint16(c[0xb2:], 4<<4|1)      // x4, 2.5 GT/s
	binary.LittleEndian.PutUint32(c[0x100:], 0x14010001) // AER, next 0x140
	binary.LittleEndian.PutUint32(c[0x140:], 0x00010003) // serial number, last
	return c
}

func TestCapabilitiesOfACard(t *testing.T) {
	config := configOf82599()
	got, err := Capabilities(config)
	want := []Capability{
		{ID: CapPowerManagement, Offset: 0x40}, {ID: CapMSI, Offset: 0x50}, {ID: CapMSIX, Offset: 0x70}, {ID: CapExpress, Offset: 0xa0},
		{ID: 1, Extended: true, Version: 1, Offset: 0x100}, {ID: 3, Extended: true, Version: 1, Offset: 0x140},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
	if got[4].Name() != "advanced error reporting" || got[2].Name() != "MSI-X" {
		t.Errorf("names: %q, %q", got[4].Name(), got[2].Name())
	}
	c, ok := FindCapability(got, CapMSIX)
	m, err := ParseMSIX(config, c)
	if want := (MSIX{Vectors: 64, TableBAR: 4, PBABAR: 4, PBAOffset: 0x2000, Enabled: true}); !ok || err != nil || m != want {
		t.Errorf("MSI-X: %+v, %v; want %+v", m, err, want)
	}
	c, ok = FindCapability(got, CapExpress)
	x, err := ParseExpress(config, c)
	if want := (Express{FLR: true, Width: 4, MaxWidth: 8, Speed: 2500, MaxSpeed: 5000}); !ok || err != nil || x != want {
		t.Errorf("PCI Express: %+v, %v; want %+v", x, err, want)
	}
	if c, ok := FindCapability(got, CapVendor); ok {
		t.Errorf("a vendor's capability at %#x that is not there", c.Offset)
	}
}

// What the unprivileged see ends before the first capability.
func TestCapabilitiesBeyondWhatIsShown(t *testing.T) {
	for length, found := range map[int]int{0: 0, 63: 0, 64: 0, 0x44: 1, 0x72: 2, 256: 4, 0x102: 4, 0x104: 5} {
		list, err := Capabilities(configOf82599()[:length])
		if short := length != 256; errors.Is(err, ErrConfigShort) != short || len(list) != found {
			t.Errorf("%d bytes: %d capabilities, %v; want %d", length, len(list), err, found)
		}
	}
}

func TestHostileCapabilityListsEnd(t *testing.T) {
	for name, spoil := range map[string]func(c []byte){
		"a circle of one":        func(c []byte) { c[0x41] = 0x40 },
		"a circle of all":        func(c []byte) { c[0xa1] = 0x43 },
		"into the header":        func(c []byte) { c[0x41] = 0x10 },
		"an extended circle":     func(c []byte) { binary.LittleEndian.PutUint32(c[0x140:], 0x10010003) },
		"back before 0x100":      func(c []byte) { binary.LittleEndian.PutUint32(c[0x140:], 0x04010003) },
		"an extended one itself": func(c []byte) { binary.LittleEndian.PutUint32(c[0x140:], 0x14010003) },
	} {
		c := configOf82599()
		spoil(c)
		if list, err := Capabilities(c); err == nil || errors.Is(err, ErrConfigShort) || len(list) > 6 {
			t.Errorf("%s: %d capabilities, error %v", name, len(list), err)
		}
	}
}

func TestNoCapabilities(t *testing.T) {
	plain := make([]byte, ConfigSize)
	if list, err := Capabilities(plain); list != nil || err != nil {
		t.Errorf("a device without: %v, %v", list, err)
	}
	gone := make([]byte, ConfigSizeMax)
	for i := range gone {
		gone[i] = 0xff
	}
	if list, err := Capabilities(gone); err == nil && len(list) > 64 {
		t.Errorf("a device that is gone: %v", list)
	}
}

func TestMSIXInNoBARIsRefused(t *testing.T) {
	c := configOf82599()
	c[0x74] = 7
	if m, err := ParseMSIX(c, Capability{ID: CapMSIX, Offset: 0x70}); err == nil {
		t.Errorf("%+v", m)
	}
	for _, at := range []Capability{{ID: CapMSIX, Offset: -1}, {ID: CapMSIX, Offset: 4090}, {ID: CapMSIX, Offset: 0x70, Extended: true}, {ID: CapMSI, Offset: 0x70}} {
		if m, err := ParseMSIX(c, at); err == nil {
			t.Errorf("%+v: %+v", at, m)
		}
	}
}

func FuzzCapabilities(f *testing.F) {
	f.Add(configOf82599())
	f.Add(configOf82599()[:256])
	f.Add(configOf82599()[:64])
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, config []byte) {
		list, _ := Capabilities(config)
		met := map[int]bool{}
		for _, c := range list {
			if c.Offset < ConfigHeaderSize || c.Offset+4 > len(config) || met[c.Offset] {
				t.Fatalf("%+v in %d bytes", c, len(config))
			}
			met[c.Offset] = true
			_, _ = ParseMSIX(config, c)
			_, _ = ParseExpress(config, c)
		}
	})
}
