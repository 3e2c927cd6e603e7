package nic82599

import "testing"

// capabilities walks the list in configuration space.
func (d *mini) capabilities(t *testing.T) (ids []uint32) {
	t.Helper()
	at := uint32(0x34)
	for {
		next, err := d.card.ReadConfig(int(at), 1)
		if err != nil {
			t.Fatal(err)
		}
		if next == 0 {
			return ids
		}
		id, err := d.card.ReadConfig(int(next), 1)
		if err != nil {
			t.Fatal(err)
		}
		ids, at = append(ids, id), next+1
	}
}

func TestCardWithoutMSIXHasTheOtherCapabilities(t *testing.T) {
	const pm, msi, msix, pcie = 0x01, 0x05, 0x11, 0x10
	for none, want := range map[bool][]uint32{false: {pm, msi, msix, pcie}, true: {pm, msi, pcie}} {
		r := newRig(t, 1, miniOptions{}, func(c *Config) { c.NoMSIX = none })
		got := r.a.capabilities(t)
		if len(got) != len(want) {
			t.Fatalf("capabilities %x, want %x", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("capabilities %x, want %x", got, want)
			}
		}
		if err := r.a.card.WriteConfig(cfgCapMSIX+2, 2, 0x8000); err != nil {
			t.Fatal(err)
		}
		if v, err := r.a.card.ReadConfig(cfgCapMSIX+2, 2); err != nil || v>>15 != 0 == none {
			t.Errorf("without MSI-X: %v; where it is enabled there is %#x, %v", none, v, err)
		}
	}
}
