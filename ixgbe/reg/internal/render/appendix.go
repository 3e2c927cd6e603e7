package render

import (
	"bytes"
	"fmt"

	"bare.wire/ixgbe/reg"
)

const (
	titleDescs   = "Descriptors"
	titleConsts  = "Numbers"
	titleStats   = "Statistics by meaning"
	titleDevices = "Devices"
)

func descriptors(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s\n\nA descriptor is two little-endian 64-bit words, w0 and w1; bits count within the word.\n", titleDescs)
	for _, d := range reg.Descs() {
		fmt.Fprintf(b, "\n**%s**: %s Source: %s.\n\n| word | bits | field | what it is |\n|---|---|---|---|\n", d.Name, d.Doc, d.Source)
		for i := range d.Fields {
			f := &d.Fields[i]
			fmt.Fprintf(b, "| w%d | %s | %s | %s |\n", f.Word, bits(&f.Field), f.Name, f.Doc+values(&f.Field))
		}
	}
}

func constants(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s\n", titleConsts)
	group := ""
	for _, c := range reg.Consts() {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(b, "\n**%s**\n\n| name | value | what it is | source |\n|---|---|---|---|\n", group)
		}
		value := fmt.Sprintf("%X", c.Value)
		if c.Value > 9 {
			value += fmt.Sprintf(" (%d)", c.Value)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", c.Name, value, c.Doc, c.Source)
	}
}

func statistics(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s\n\n"+
		"What a person wants to know, and the register that feeds it. Of the classes, *receive error* rows add up to the\n"+
		"receive errors; *other* rows are detail, or counted in another row already.\n\n"+
		"| statistic | register | counts | class | what it is |\n|---|---|---|---|---|\n", titleStats)
	for _, s := range reg.Stats() {
		name := s.Reg
		if s.High != "" {
			name += ", " + s.High
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", s.Name, name, s.Kind, s.Class, s.Doc)
	}
}

func devices(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s\n\nIds of vendor 8086. The table above fits those marked yes.\n\n"+
		"| id | family | part | fits |\n|---|---|---|---|\n", titleDevices)
	for _, d := range reg.Devices() {
		fits := "no"
		if d.Supported() {
			fits = "yes"
		}
		fmt.Fprintf(b, "| %04X | %s | %s | %s |\n", d.ID, d.Family, d.Name, fits)
	}
}
