package render

import (
	"bytes"
	"fmt"
	"strings"

	"bare.wire/ixgbe/reg"
)

// Markdown returns docs/registers.md.
func Markdown() []byte {
	var b bytes.Buffer
	b.WriteString(head)
	contents(&b)
	legend(&b)
	group := ""
	var regs []reg.Reg
	for _, r := range reg.All() {
		if r.Group != group && group != "" {
			section(&b, group, regs)
			regs = nil
		}
		group = r.Group
		regs = append(regs, r)
	}
	section(&b, group, regs)
	descriptors(&b)
	constants(&b)
	statistics(&b)
	devices(&b)
	return b.Bytes()
}

const head = `<!-- Generated from ixgbe/reg by "go generate ./ixgbe/reg". Do not edit. -->

# Registers of the Intel 82599

This page is printed from the table in ` + "`ixgbe/reg`" + `, which is also what the driver's constants, the software card,
the register dump and the statistics are made from. All numbers are hexadecimal unless they count something; offsets
are in bytes from the start of BAR 0. Section numbers (§) are those of the 82599 datasheet, Intel document 331520;
register sections (§8.2.3…) are as Barrelfish cites them, from the datasheet's revision 2.6.

`

func contents(b *bytes.Buffer) {
	group := ""
	for _, r := range reg.All() {
		if r.Group != group {
			group = r.Group
			link(b, group)
		}
	}
	for _, s := range []string{titleDescs, titleConsts, titleStats, titleDevices} {
		link(b, s)
	}
	b.WriteByte('\n')
}

func link(b *bytes.Buffer, title string) {
	fmt.Fprintf(b, "- [%s](#%s)\n", title, anchor(title))
}

// anchor is the fragment that a Markdown heading gets.
func anchor(title string) string {
	keep := func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-', c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(title))
}

var modeDocs = []struct {
	m   reg.Mode
	doc string
}{
	{reg.RW, "keeps what is written"},
	{reg.RO, "writes change nothing"},
	{reg.WO, "acts on a write; what a read returns means nothing"},
	{reg.RC, "a read returns it and clears it"},
	{reg.W1C, "writing 1 clears a bit"},
	{reg.RCW1C, "cleared by a read or by writing 1, depending on GPIE"},
	{reg.W1S, "writing 1 sets a bit, writing 0 leaves it"},
	{reg.SC, "set by software, cleared by the card when it is done"},
	{reg.RS, "a read returns the bit and then sets it"},
	{reg.LL, "latched low: a past 0 is shown once, so read twice"},
	{reg.RC36Lo, "low 32 bits of a 36-bit counter; read first"},
	{reg.RC36Hi, "its top 4 bits, 4 bytes further; reading them clears both"},
}

func legend(b *bytes.Buffer) {
	b.WriteString("## How to read the tables\n\n| mode | meaning |\n|---|---|\n")
	for _, m := range modeDocs {
		fmt.Fprintf(b, "| %s | %s |\n", m.m, m.doc)
	}
	b.WriteString("\nThe mask is the set of bits that keep what is written; reset is the value after a device reset.\n" +
		"Where no source gives one the table says *unknown*; it is not a guess that the register has none.\n\n" +
		"| source | what it is |\n|---|---|\n")
	for _, s := range reg.Sources() {
		fmt.Fprintf(b, "| %s | %s |\n", s.Name, s.Doc)
	}
	known, resets, n := 0, 0, 0
	for _, r := range reg.All() {
		n++
		if r.Mask.Known {
			known++
		}
		if r.Reset.Known {
			resets++
		}
	}
	fmt.Fprintf(b, "\n%d rows; of %d the mask is known, of %d the reset value.\n", n, known, resets)
}

func section(b *bytes.Buffer, group string, regs []reg.Reg) {
	fmt.Fprintf(b, "\n## %s\n\n| register | offset | mode | mask | reset | what it is | source |\n|---|---|---|---|---|---|---|\n", group)
	for _, r := range regs {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n",
			title(&r), offsets(&r), r.Mode, r.Mask, r.Reset, r.Doc, r.Source)
	}
	shared := map[string]string{} // fields already printed, by their text
	for _, r := range regs {
		if len(r.Fields) == 0 {
			continue
		}
		text := fieldTable(&r)
		if other, ok := shared[text]; ok {
			fmt.Fprintf(b, "\n**%s** has the fields of %s.\n", r.Name, other)
			continue
		}
		shared[text] = r.Name
		fmt.Fprintf(b, "\n**%s**\n\n%s", r.Name, text)
	}
}

func title(r *reg.Reg) string {
	if r.Count() == 1 {
		return r.Name
	}
	return r.Name + "(n)"
}

// fieldTable prints fields from the highest bit down, as the row lists them.
func fieldTable(r *reg.Reg) string {
	var b strings.Builder
	b.WriteString("| bits | field | mode | what it is | source |\n|---|---|---|---|---|\n")
	for i := range r.Fields {
		f := &r.Fields[i]
		mode := f.Mode
		if mode == reg.ModeOfReg {
			mode = r.Mode
		}
		src := f.Source
		if src == "" {
			src = "as register"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", bits(f), f.Name, mode, f.Doc+values(f), src)
	}
	return b.String()
}

func bits(f *reg.Field) string {
	if f.Lo == f.Hi {
		return fmt.Sprint(f.Lo)
	}
	return fmt.Sprintf("%d:%d", f.Hi, f.Lo)
}

func values(f *reg.Field) string {
	if len(f.Values) == 0 {
		return ""
	}
	var parts []string
	for _, v := range f.Values {
		s := fmt.Sprintf("%X = %s", v.V, v.Name)
		if v.Doc != "" {
			s += " (" + v.Doc + ")"
		}
		parts = append(parts, s)
	}
	return " " + strings.Join(parts, ", ") + "."
}

// offsets prints where a register is: 01018 + 40·n for n<64, …, also …
func offsets(r *reg.Reg) string {
	s := banks(r.Banks)
	if len(r.Aliases) > 0 {
		s += "; also " + banks(r.Aliases)
	}
	return s
}

func banks(bs []reg.Bank) string {
	var parts []string
	first := 0
	for _, b := range bs {
		switch {
		case b.Count == 1 && len(bs) == 1:
			parts = append(parts, fmt.Sprintf("%05X", b.Off))
		case b.Count == 1:
			parts = append(parts, fmt.Sprintf("%05X for n=%d", b.Off, first))
		case first == 0:
			parts = append(parts, fmt.Sprintf("%05X + %X·n for n<%d", b.Off, b.Stride, b.Count))
		default:
			parts = append(parts, fmt.Sprintf("%05X + %X·(n−%d) for n<%d", b.Off, b.Stride, first, first+b.Count))
		}
		first += b.Count
	}
	return strings.Join(parts, ", ")
}

func firstSentence(s string) string {
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i+1]
	}
	return s
}
