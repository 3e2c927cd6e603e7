package pci

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Sizes of configuration space in bytes. Without privilege the kernel shows the header only.
const (
	ConfigHeaderSize = 64
	ConfigSize       = 256  // PCI
	ConfigSizeMax    = 4096 // PCI Express
)

// Config is a function's configuration space as sysfs gives it, open. The kernel serves accesses also while a driver has the
// function. Its methods may be called from several goroutines.
type Config struct {
	f    *os.File
	name string
}

// OpenConfig opens the configuration space of the function at a; write asks for more than reading, which root may.
func (h *Host) OpenConfig(a Address, write bool) (*Config, error) {
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR
	}
	f, err := os.OpenFile(h.path("/sys/bus/pci/devices", a.String(), "config"), flags|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("PCI device %s: open configuration space: %w; root may", a, err)
	case err != nil:
		return nil, fmt.Errorf("PCI device %s: open configuration space: %w", a, err)
	}
	return &Config{f, a.String()}, nil
}

// Close closes it.
func (c *Config) Close() error { return c.f.Close() }

// File is the open file; it stays c's. A child process that is to end DMA gets it.
func (c *Config) File() *os.File { return c.f }

// ReadConfig reads 1, 2 or 4 bytes at off, which is a multiple of size.
func (c *Config) ReadConfig(off, size int) (uint32, error) {
	if err := c.check(off, size); err != nil {
		return 0, err
	}
	var b [4]byte
	if n, err := c.f.ReadAt(b[:size], int64(off)); n < size {
		return 0, fmt.Errorf("PCI device %s: read %d bytes of configuration space at %#x: %w (beyond the first 64 bytes only root may)", c.name, size, off, err)
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

// WriteConfig writes 1, 2 or 4 bytes at off, which is a multiple of size.
func (c *Config) WriteConfig(off, size int, v uint32) error {
	if err := c.check(off, size); err != nil {
		return err
	}
	if size < 4 && v>>(8*size) != 0 {
		return fmt.Errorf("PCI device %s: write configuration space at %#x: %#x does not fit in %d bytes", c.name, off, v, size)
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	if _, err := c.f.WriteAt(b[:size], int64(off)); err != nil {
		return fmt.Errorf("PCI device %s: write %d bytes of configuration space at %#x: %w", c.name, size, off, err)
	}
	return nil
}

func (c *Config) check(off, size int) error {
	if err := checkConfig(off, size, ConfigSizeMax); err != nil {
		return fmt.Errorf("PCI device %s: configuration space: %w", c.name, err)
	}
	return nil
}

// checkConfig says whether size bytes at off can be accessed.
func checkConfig(off, size int, space uint64) error {
	if size != 1 && size != 2 && size != 4 || off < 0 || off%size != 0 || uint64(off)+uint64(size) > space {
		return fmt.Errorf("%d bytes at %#x: want 1, 2 or 4, aligned, within %d bytes", size, off, space)
	}
	return nil
}

// ReadConfigSpace returns the configuration space of the function at a, as much as the kernel shows: 64 bytes to the
// unprivileged, else 256 or 4096.
func (h *Host) ReadConfigSpace(a Address) ([]byte, error) {
	b, err := readFile(h.path("/sys/bus/pci/devices", a.String(), "config"), ConfigSizeMax)
	if err != nil {
		return nil, fmt.Errorf("PCI device %s: read configuration space: %w", a, err)
	}
	if len(b) < ConfigHeaderSize {
		return nil, fmt.Errorf("PCI device %s: its configuration space is %d bytes long, want at least %d", a, len(b), ConfigHeaderSize)
	}
	return b, nil
}
