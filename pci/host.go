package pci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Host is the machine that is looked at: its /sys, /proc, /dev and /run. The zero value is this machine; a Root makes it
// another one, for tests and for trees that were copied from elsewhere. A Host has no state of its own; its methods may be
// called from several goroutines, but two that change the binding of one device at the same time make each other fail.
type Host struct {
	// Root is the directory that holds sys/, proc/, dev/ and run/; "" is /.
	Root string

	// Write, when it is set, is called in place of writing text to a file in sysfs (name begins with Root). Tests put a
	// kernel's reaction here; package pcitest has one.
	Write func(name, text string) error
}

// Limits on what is read. sysfs itself gives at most a page per attribute; a tree from elsewhere may hold anything.
const (
	maxAttribute = 64 << 10
	maxTable     = 16 << 20 // tables in /proc/net
	maxEntries   = 1 << 16  // names in one directory
)

// path joins an absolute name, as in "/sys/bus/pci", and further elements to the root.
func (h *Host) path(elem ...string) string {
	root := h.Root
	if root == "" {
		root = "/"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// Path is where the host has a file that is called name on the machine itself, as in "/dev/vfio/17".
func (h *Host) Path(name string) string { return h.path(name) }

// live reports whether h is the machine that this process runs on.
func (h *Host) live() bool { return h.path() == "/" }

// devicePath is the directory of a function in sysfs.
func (h *Host) devicePath(a Address) string { return h.path("/sys/bus/pci/devices", a.String()) }

// readFile returns at most limit bytes of a file; more is an error. It does not wait for a pipe's other end.
func readFile(name string, limit int) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing can be lost
	return readAll(f, limit)
}

func readAll(f *os.File, limit int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(b) > limit {
		return nil, fmt.Errorf("%s: longer than %d bytes, so it is not what it should be", f.Name(), limit)
	}
	return b, nil
}

// readText returns the text of an attribute without the space around it.
func readText(elem ...string) (string, error) {
	b, err := readFile(filepath.Join(elem...), maxAttribute)
	return strings.TrimSpace(string(b)), err
}

// readLink returns the last element of what a link names, "" when there is no such link.
func readLink(elem ...string) (string, error) {
	to, err := os.Readlink(filepath.Join(elem...))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return filepath.Base(to), nil
}

// readNames lists a directory, sorted; none when it does not exist.
func readNames(elem ...string) ([]string, error) {
	f, err := os.Open(filepath.Join(elem...))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing can be lost
	names, err := f.Readdirnames(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return sorted(names), err
}

// gone reports whether an error says that a device or file is not there any more, in any of the ways in which sysfs says so.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
}

// writeFile writes text to an existing sysfs attribute with one write, as the kernel wants it. The write may take as long as
// the driver behind it likes (taking a device from a driver waits for those who use it); when ctx ends first, its error is
// returned and the write goes on without anybody waiting for it.
func (h *Host) writeFile(ctx context.Context, name, text string) error {
	write := h.Write
	if write == nil {
		write = writeAttribute
	}
	done := make(chan error, 1)
	go func() { done <- write(name, text) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write %q to %s: the kernel has not finished: %w", text, name, ctx.Err())
	}
}

func writeAttribute(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
