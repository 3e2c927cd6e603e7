package cpio

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// entries takes an archive apart, by the format's definition and not by this package's code: name, mode, length or device, content.
func entries(t *testing.T, b []byte) (list []string) {
	t.Helper()
	field := func(i int) int64 {
		n, err := strconv.ParseInt(string(b[6+8*i:14+8*i]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	round := func(n int64) int64 { return (n + 3) / 4 * 4 }
	inodes := map[int64]bool{}
	for len(b) > 0 {
		if string(b[:6]) != "070701" {
			t.Fatalf("no head of an entry: %q", b[:6])
		}
		if inodes[field(0)] || field(4) != 1 && field(4) != 0 {
			t.Errorf("inode %d, links %d", field(0), field(4))
		}
		inodes[field(0)] = true
		mode, size, major, minor, name := field(1), field(6), field(9), field(10), field(11)
		length := fmt.Sprint(size)
		if mode&0o170000 == 0o020000 {
			length = fmt.Sprintf("%d:%d", major, minor)
		}
		from := round(110 + name)
		if b[110+name-1] != 0 {
			t.Errorf("the name %q has no NUL at its end", b[110:110+name])
		}
		list = append(list, fmt.Sprintf("%s 0%o %s %s", b[110:110+name-1], mode, length, b[from:from+size]))
		b = b[from+round(size):]
	}
	return list
}

// TestArchive holds the archive against its definition, field by field: what no kernel would complain about before it fails to boot.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, perm os.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), perm); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("tree/a", "12345", 0o755)
	write("tree/sub/b", "", 0o600)
	if err := os.Symlink("a", filepath.Join(dir, "tree/link")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	w.CharDevice("/dev/console", 0o600, 5, 1)
	if err := w.Tree("/opt/tree", filepath.Join(dir, "tree")); err != nil {
		t.Fatal(err)
	}
	if err := w.Tree("/bin/prog", filepath.Join(dir, "tree/link")); err != nil { // a link given as file is followed
		t.Fatal(err)
	}
	w.Bytes("/opt/text", 0o644, []byte("hello"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != w.Size() || b.Len()%4 != 0 {
		t.Errorf("%d bytes, Size says %d", b.Len(), w.Size())
	}
	want := []string{
		"dev 040755 0 ", "dev/console 020600 5:1 ", "opt 040755 0 ", "opt/tree 040755 0 ", "opt/tree/a 0100755 5 12345", "opt/tree/link 0120777 1 a",
		"opt/tree/sub 040755 0 ", "opt/tree/sub/b 0100600 0 ", "bin 040755 0 ", "bin/prog 0100755 5 12345", "opt/text 0100644 5 hello", "TRAILER!!! 00 0 ",
	}
	if got := entries(t, b.Bytes()); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{"dev", "dev/console", "opt"}; !slices.Equal(w.Names()[:3], want) || !slices.Contains(w.Names(), "opt/tree/a 5") {
		t.Errorf("names: %q", w.Names())
	}
}

func TestFileThatIsNotThere(t *testing.T) {
	var b bytes.Buffer
	if err := NewWriter(&b).Tree("/x", filepath.Join(t.TempDir(), "nothing")); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("got %v", err)
	}
}
