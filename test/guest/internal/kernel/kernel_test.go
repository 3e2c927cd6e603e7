package kernel

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var le = binary.LittleEndian

// module is an ELF file whose only section that matters is .modinfo.
func module(info ...string) []byte {
	const head = 64
	data := strings.Join(info, "\x00") + "\x00"
	names := "\x00.modinfo\x00.shstrtab\x00"
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 1)  // relocatable
	b = le.AppendUint16(b, 62) // x86-64
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(le.AppendUint64(b, 0), 0)
	b = le.AppendUint64(b, uint64(head+len(data)+len(names))) // where the table of sections is
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{head, 0, 0, 64, 3, 2} { // sizes and counts; the third section has the names
		b = le.AppendUint16(b, v)
	}
	b = append(append(b, data...), names...)
	for _, s := range []struct{ name, kind, at, size int }{{}, {1, 1, head, len(data)}, {10, 3, head + len(data), len(names)}} {
		b = le.AppendUint32(le.AppendUint32(b, uint32(s.name)), uint32(s.kind))
		for _, v := range []int{0, 0, s.at, s.size, 0, 1, 0} { // flags, address, offset, size, link and info, alignment, size of an entry
			b = le.AppendUint64(b, uint64(v))
		}
	}
	return b
}

// unpacked is a directory like that of an unpacked kernel, with the given modules by file name.
func unpacked(t *testing.T, modules map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{"boot/vmlinuz-6.1.0-57": []byte("image")}
	for name, b := range modules {
		files["lib/modules/6.1.0-57/kernel/drivers/"+name] = b
	}
	for name, b := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var modules = map[string][]byte{
	"virtio.ko":         module("license=GPL", "depends=virtio_ring"),
	"virtio_ring.ko":    module("depends="),
	"virtio-pci.ko":     module("depends=virtio_ring,virtio-legacy,virtio", "name=virtio_pci"),
	"virtio-legacy.ko":  module("depends="),
	"vfio.ko":           module("depends=", "softdep=post: vfio_iommu_type1 vfio_iommu_spapr_tce"),
	"crypto.ko":         module("depends=", "softdep=pre: virtio_ring not_there post: vfio"),
	"round.ko":          module("depends=trip"),
	"trip.ko":           module("depends=round"),
	"lacks.ko":          module("depends=gone"),
	"no-elf.ko":         []byte("text"),
	"deep/in/there.ko":  module("depends=vfio"),
	"ignored.ko.sig":    []byte("x"),
	"section-cut.ko":    module("depends=")[:100],
	"empty-modinfo.ko":  module(),
	"not-a-pair.ko":     module("depends"),
	"twice-depends.ko":  module("depends=vfio", "depends=virtio"),
	"virtio_console.ko": module("depends=virtio,virtio_ring"),
}

func TestModulesAreInOrder(t *testing.T) {
	k, err := open(t.Context(), unpacked(t, modules))
	if err != nil {
		t.Fatal(err)
	}
	if k.Release != "6.1.0-57" || filepath.Base(k.Image) != "vmlinuz-6.1.0-57" {
		t.Errorf("release %s, image %s", k.Release, k.Image)
	}
	for _, c := range []struct{ ask, order string }{
		{"virtio", "virtio_ring virtio"},
		{"virtio_pci virtio-console", "virtio_ring virtio_legacy virtio virtio_pci virtio_console"},
		{"vfio", "vfio"},
		{"crypto", "virtio_ring crypto"},
		{"there", "vfio there"},
		{"empty-modinfo not_a_pair", "empty_modinfo not_a_pair"},
		{"twice_depends", "vfio virtio_ring virtio twice_depends"},
		{"", ""},
	} {
		got, err := k.Resolve(strings.Fields(c.ask)...)
		if err != nil {
			t.Errorf("%s: %v", c.ask, err)
			continue
		}
		var names []string
		for _, m := range got {
			names = append(names, m.Name)
		}
		if s := strings.Join(names, " "); s != c.order {
			t.Errorf("%s: got %q, want %q", c.ask, s, c.order)
		}
	}
	all, err := k.Resolve("virtio_pci")
	if err != nil || !slices.Equal(all[len(all)-1].Needs, []string{"virtio_ring", "virtio_legacy", "virtio"}) {
		t.Errorf("what virtio_pci needs: %v, %v", all, err)
	}
}

func TestModulesThatCannotBeLoaded(t *testing.T) {
	k, err := open(t.Context(), unpacked(t, modules))
	if err != nil {
		t.Fatal(err)
	}
	for ask, says := range map[string]string{
		"absent": "no module absent", "round": "needs itself", "lacks": "no module gone", "no_elf": "no-elf.ko", "section_cut": "section", "ignored": "no module",
	} {
		if _, err := k.Resolve(ask); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", ask, err, says)
		}
	}
}

func TestKernelWithoutItsParts(t *testing.T) {
	if _, err := open(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "vmlinuz") {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := open(t.Context(), unpacked(t, nil)); err == nil || !strings.Contains(err.Error(), "no modules") {
		t.Errorf("no modules: %v", err)
	}
}

// bzImage is an image with the given payload, and the length that it says the payload has.
func bzImage(p []byte, length int) []byte {
	b := make([]byte, 2*sector)
	b[setupSectors] = 1
	copy(b[setupMagic:], "HdrS")
	le.PutUint32(b[payloadOffset:], 16)
	le.PutUint32(b[payloadLength:], uint32(length))
	return append(append(b, make([]byte, 16)...), p...)
}

func TestKernelCompressedWithXZIsUnpackedOnce(t *testing.T) {
	elf := module("x=y")
	cmd := exec.Command("xz", "-c", "--check=crc32")
	cmd.Stdin = bytes.NewReader(elf)
	xz, err := cmd.Output()
	if err != nil {
		t.Fatalf("xz: %v", err)
	}
	p := append(xz, 1, 2, 3, 4)
	dir := t.TempDir()
	image, to := filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "vmlinux")
	if err := os.WriteFile(image, bzImage(p, len(p)), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := quicker(t.Context(), image, to); got != to {
			t.Fatalf("got %s", got)
		}
		if err := os.WriteFile(image, nil, 0o644); err != nil { // the second time, it is not looked at
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(to); err != nil || !bytes.Equal(b, elf) {
		t.Errorf("unpacked: %d bytes, %v", len(b), err)
	}
}

func TestImagesThatAreLeftAsTheyAre(t *testing.T) {
	xz := append(slices.Clone(xzMagic), "and no more of it"...)
	for name, b := range map[string][]byte{
		"empty": nil, "short": []byte("HdrS"), "another compression": bzImage([]byte("\x02\x21\x4c\x18 lz4"), 8), "cut off": bzImage(xz, 1000),
		"a length beyond all bounds": bzImage(xz, 1<<32-1), "not really xz": bzImage(xz, len(xz)), "nothing": bzImage(nil, 0),
	} {
		dir := t.TempDir()
		image := filepath.Join(dir, "vmlinuz")
		if err := os.WriteFile(image, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := quicker(t.Context(), image, filepath.Join(dir, "vmlinux")); got != image {
			t.Errorf("%s: got %s", name, got)
		}
	}
}
