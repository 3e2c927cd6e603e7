package pci

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Address is where a function sits: domain (segment), bus, device (slot, below 32) and function (below 8).
type Address struct {
	Domain   uint32
	Bus      uint8
	Device   uint8
	Function uint8
}

// String writes a in the kernel's form, "0000:03:00.0".
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
}

// Compare orders addresses as the bus is numbered.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Function, b.Function))
}

// ParseAddress reads "0000:03:00.0", or "03:00.0" in domain 0, hexadecimal in either case. It is strict, because the text
// becomes part of a file name: String of the result is the only other form of the same address.
func ParseAddress(s string) (Address, error) {
	wrong := func(why string) (Address, error) {
		if len(s) > 40 {
			s = s[:40] + "..."
		}
		return Address{}, fmt.Errorf("PCI address %q: %s; write it as in 0000:03:00.0 (\"pktgen devices\" lists them)", s, why)
	}
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 {
		return wrong("not domain:bus:device.function")
	}
	slot, function, dotted := strings.Cut(parts[2], ".")
	if !dotted {
		return wrong("no function after the device")
	}
	var a Address
	for _, f := range []struct {
		name, text  string
		least, most int // digits
		limit       uint64
		set         func(uint64)
	}{
		{"domain", parts[0], 4, 8, 1<<32 - 1, func(v uint64) { a.Domain = uint32(v) }},
		{"bus", parts[1], 2, 2, 0xff, func(v uint64) { a.Bus = uint8(v) }},
		{"device", slot, 2, 2, 31, func(v uint64) { a.Device = uint8(v) }},
		{"function", function, 1, 1, 7, func(v uint64) { a.Function = uint8(v) }},
	} {
		v, ok := parseHex(f.text)
		switch {
		case !ok:
			return wrong(fmt.Sprintf("the %s %q is no hexadecimal number", f.name, f.text))
		case len(f.text) < f.least || len(f.text) > f.most:
			return wrong(fmt.Sprintf("the %s %q has the wrong number of digits", f.name, f.text))
		case v > f.limit:
			return wrong(fmt.Sprintf("the %s %q is more than %x", f.name, f.text, f.limit))
		}
		f.set(v)
	}
	if len(parts[0]) > 4 && parts[0][0] == '0' {
		return wrong("a domain of more than four digits starts with a zero")
	}
	return a, nil
}

// parseHex reads hexadecimal digits only: no sign, no underscore, no 0x.
func parseHex(s string) (uint64, bool) {
	if s == "" || strings.Trim(s, "0123456789abcdefABCDEF") != "" {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return v, err == nil
}
