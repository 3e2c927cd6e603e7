package debroot

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elfFile makes the least ELF file that debug/elf reads libraries from, by a description `prog: NAME…` (with an interpreter) or
// `lib: NAME…`: a header, one program header for a program, .dynamic, .dynstr and .shstrtab.
func elfFile(t *testing.T, description string) []byte {
	t.Helper()
	kind, names, ok := strings.Cut(description, ":")
	require.True(t, ok)

	strs := []byte{0}
	var dynamic []elf.Dyn64
	for name := range strings.FieldsSeq(names) {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(strs))})
		strs = append(append(strs, name...), 0)
	}
	dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	sections := []byte("\x00.dynamic\x00.dynstr\x00.shstrtab\x00")

	const headerSize, progSize, sectionSize, dynSize = 64, 56, 64, 16
	progs := 0
	if kind == "prog" {
		progs = 1
	}
	at := uint64(headerSize + progs*progSize)
	dynSection := elf.Section64{
		Name: 1, Type: uint32(elf.SHT_DYNAMIC), Off: at, Size: uint64(len(dynamic) * dynSize), Link: 2, Entsize: dynSize,
	}
	strSection := elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: at + dynSection.Size, Size: uint64(len(strs))}
	nameSection := elf.Section64{Name: 18, Type: uint32(elf.SHT_STRTAB), Off: strSection.Off + strSection.Size, Size: uint64(len(sections))}

	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: headerSize, Phentsize: progSize,
		Phnum: uint16(progs), Phoff: headerSize, Shentsize: sectionSize, Shnum: 4, Shstrndx: 3, Shoff: nameSection.Off + nameSection.Size,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1

	var b bytes.Buffer
	write := func(v any) { require.NoError(t, binary.Write(&b, binary.LittleEndian, v)) }
	write(h)
	if progs > 0 {
		write(elf.Prog64{Type: uint32(elf.PT_INTERP)})
	}
	write(dynamic)
	write(strs)
	write(sections)
	write([]elf.Section64{{}, dynSection, strSection, nameSection})
	return b.Bytes()
}
