// Package cpio writes archives of the format "newc", as a Linux kernel unpacks them into its first file system
// (Documentation/driver-api/early-userspace/buffer-format.rst in the kernel's tree).
package cpio

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Types and permissions of entries, as stat(2) has them.
const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeLink    = 0o120000
	modeChar    = 0o020000
	modeType    = 0o170000
)

// Writer writes an archive. Directories above an entry are made as needed. The first error stays, and Close returns it.
type Writer struct {
	w     *bufio.Writer
	err   error
	at    int64 // bytes written
	inode uint32
	dirs  map[string]bool
	names []string
}

// NewWriter returns a Writer of an archive to w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{}}
}

// Names is what has been written so far: paths without the leading slash and, of files, the length in bytes after a space.
func (w *Writer) Names() []string { return w.names }

// Size is the bytes written so far.
func (w *Writer) Size() int64 { return w.at }

// Dir makes a directory, and those above it.
func (w *Writer) Dir(name string) {
	name = clean(name)
	if name == "" || w.dirs[name] {
		return
	}
	w.Dir(path.Dir("/" + name))
	w.dirs[name] = true
	w.header(name, modeDir|0o755, 0, 0, 0)
}

// CharDevice makes the node of a character device.
func (w *Writer) CharDevice(name string, perm, major, minor uint32) {
	w.Dir(path.Dir("/" + clean(name)))
	w.header(clean(name), modeChar|perm, 0, major, minor)
}

// Link makes a symbolic link.
func (w *Writer) Link(name, target string) {
	w.Dir(path.Dir("/" + clean(name)))
	w.header(clean(name), modeLink|0o777, int64(len(target)), 0, 0)
	w.body(strings.NewReader(target), int64(len(target)))
}

// Bytes makes a file of b.
func (w *Writer) Bytes(name string, perm uint32, b []byte) {
	w.Dir(path.Dir("/" + clean(name)))
	w.header(clean(name), modeRegular|perm, int64(len(b)), 0, 0)
	w.body(strings.NewReader(string(b)), int64(len(b)))
}

// Tree takes in a file or a directory of this machine under the given name, with permissions and symbolic links as they are. A
// link given itself as file is followed. Sockets, pipes and devices are left out.
func (w *Writer) Tree(name, file string) error {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return fmt.Errorf("taking %s into the guest: %w", file, err)
	}
	err = filepath.WalkDir(real, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(real, p)
		if err != nil {
			return err
		}
		return w.entry(path.Join("/", name, filepath.ToSlash(rel)), p, d)
	})
	if err != nil {
		return fmt.Errorf("taking %s into the guest: %w", file, err)
	}
	return w.err
}

func (w *Writer) entry(name, file string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		w.Dir(name)
	case d.Type() == fs.ModeSymlink:
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		w.Link(name, target)
	case d.Type().IsRegular():
		return w.file(name, file)
	}
	return nil
}

func (w *Writer) file(name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	w.Dir(path.Dir("/" + clean(name)))
	w.header(clean(name), modeRegular|uint32(st.Mode().Perm()), st.Size(), 0, 0)
	w.body(f, st.Size())
	return w.err
}

// Close writes the end of the archive. The underlying writer stays open.
func (w *Writer) Close() error {
	w.header("TRAILER!!!", 0, 0, 0, 0)
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.err
}

func (w *Writer) header(name string, mode uint32, size int64, major, minor uint32) {
	if size > 1<<32-1 {
		w.fail(fmt.Errorf("%s has %d bytes, more than the format can say", name, size))
		return
	}
	w.inode++
	if mode&modeType == modeRegular {
		w.names = append(w.names, fmt.Sprintf("%s %d", name, size))
	} else if mode != 0 {
		w.names = append(w.names, name)
	}
	// magic, inode, mode, uid, gid, links, mtime, size, device (2), represented device (2), length of the name with its NUL, check
	w.print("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		w.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	w.pad()
}

func (w *Writer) body(r io.Reader, size int64) {
	if w.err != nil {
		return
	}
	n, err := io.Copy(w.w, io.LimitReader(r, size))
	w.at += n
	if err == nil && n != size {
		err = fmt.Errorf("a file became shorter while it was read: %d bytes of %d", n, size)
	}
	w.fail(err)
	w.pad()
}

// pad fills up to a multiple of four bytes.
func (w *Writer) pad() {
	for w.err == nil && w.at%4 != 0 {
		w.print("\x00")
	}
}

func (w *Writer) print(format string, args ...any) {
	if w.err != nil {
		return
	}
	n, err := fmt.Fprintf(w.w, format, args...)
	w.at += int64(n)
	w.fail(err)
}

func (w *Writer) fail(err error) {
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("writing the guest's file system: %w", err)
	}
}

// clean is a path without its leading slash; the root is "".
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
