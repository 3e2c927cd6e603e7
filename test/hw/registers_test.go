package hw

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"bare.wire/clock"
	"bare.wire/device"
	"bare.wire/ixgbe"
	"bare.wire/ixgbe/reg"
	"bare.wire/mbuf"
	"bare.wire/pci"
	"bare.wire/vtop"
)

func newPool(set *device.Set) (*mbuf.Pool, error) {
	return mbuf.NewPool(mbuf.Config{Name: "registers", Space: set.Space, Buffers: 1024})
}

// personal says whether a register holds an address of the machine or of its management, or a key.
func personal(off uint32) bool {
	r, _, ok := reg.Lookup(off)
	return !ok || r.Name == "RAL" || r.Name == "RAH" || r.Group == "Wake-up and management" || strings.Contains(r.Name, "KEY") || strings.Contains(r.Name, "SALT")
}

// list is a dump, a line for each run of registers with one name and one value.
func list(dump []ixgbe.Register) string {
	var b strings.Builder
	for i := 0; i < len(dump); {
		first := dump[i]
		name, index, _ := strings.Cut(first.Name, "[")
		end := i + 1
		for end < len(dump) && strings.HasPrefix(dump[end].Name, name+"[") && dump[end].Value == first.Value {
			end++
		}
		label := first.Name
		if end > i+1 {
			_, last, _ := strings.Cut(dump[end-1].Name, "[")
			label = fmt.Sprintf("%s[%s…%s", name, strings.TrimSuffix(index, "]"), last)
		}
		value := fmt.Sprintf("%08x", first.Value)
		if personal(first.Offset) && first.Value != 0 {
			value = "xxxxxxxx (not shown)"
		}
		fmt.Fprintf(&b, "%05x  %s  %s\n", first.Offset, value, label)
		i = end
	}
	return b.String()
}

// asFound are the registers that say how the firmware, or the last driver, has left the card.
var asFound = []struct {
	name string
	off  uint32
}{
	{"STATUS", reg.STATUS}, {"CTRL_EXT", reg.CTRL_EXT}, {"ESDP", reg.ESDP}, {"EEC", reg.EEC}, {"FWSM", reg.FWSM}, {"AUTOC", reg.AUTOC}, {"LINKS", reg.LINKS},
}

// eepromWords are those that say which version there is; no address and no serial number is among them.
var eepromWords = []struct {
	word uint32
	what string
}{
	{0x18, "image revision"}, {0x2d, "eTrack id, low"}, {0x2e, "eTrack id, high"}, {0x0f, "firmware module"},
}

// firstLook reads the card before any driver has reset it.
func firstLook(d *pci.Device) (string, error) {
	access := pci.VFIO
	for _, a := range []pci.Access{pci.VFIONoIOMMU, pci.Sysfs} {
		if os.Getenv("ACCESS") == a.String() {
			access = a
		}
	}
	space := vtop.NewMapped()
	if access != pci.VFIO {
		var err error
		if space, err = vtop.NewPhysical(); err != nil {
			return "", err
		}
	}
	opener := (&pci.Host{}).NewOpener(space, pci.OpenOptions{Access: access})
	fn, err := opener.Open(context.Background(), d.Address)
	if err != nil {
		return "", errors.Join(err, opener.Close())
	}
	bar, err := fn.BAR(0)
	if err != nil {
		return "", errors.Join(err, opener.Close())
	}
	var b strings.Builder
	b.WriteString("as found:")
	for _, r := range asFound {
		fmt.Fprintf(&b, " %s %08x", r.name, bar.Read32(r.off))
	}
	up := "down"
	if bar.Read32(reg.LINKS)&reg.LINKS_UP != 0 {
		up = "up"
	}
	fmt.Fprintf(&b, "\nlink as found: %s\nEEPROM:", up)
	for _, w := range eepromWords {
		v, ok := eepromWord(bar, w.word)
		if !ok {
			fmt.Fprintf(&b, " word %#x (%s) cannot be read;", w.word, w.what)
			continue
		}
		fmt.Fprintf(&b, " %#x (%s) %04x;", w.word, w.what, v)
	}
	b.WriteString("\nSFP+ module: its EEPROM is not read; ESDP above has the pin that says whether there is one\n")
	return b.String(), opener.Close()
}

// eepromWord reads a word (datasheet §8.2.3.2.2).
func eepromWord(bar pci.BAR, word uint32) (uint32, bool) {
	bar.Write32(reg.EERD, reg.Put(0, reg.EERD_ADDR, word)|reg.EERD_START)
	for range 1000 {
		if v := bar.Read32(reg.EERD); v&reg.EERD_DONE != 0 {
			return reg.Get(v, reg.EERD_DATA), true
		}
		if err := clock.Real().Sleep(context.Background(), 50*time.Microsecond); err != nil {
			return 0, false
		}
	}
	return 0, false
}
