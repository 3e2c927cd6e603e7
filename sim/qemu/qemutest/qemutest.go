// Package qemutest is the other side of package qemu's sockets, for tests: a QEMU that has no processor and no guest.
//
// A [Proxy] speaks the protocol of QEMU's x-pci-proxy-dev, a [TestSocket] that of its -qtest option, and [Main] makes a program
// of both that passes for qemu-system-x86_64 on a command line.
package qemutest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Commands of the protocol.
const (
	SyncMemory  = 0
	Return      = 1
	ConfigWrite = 2
	ConfigRead  = 3
	BARWrite    = 4
	BARRead     = 5
	SetIRQFD    = 6
	Reset       = 7
)

// Section is a piece of guest memory: Size bytes from Off on of the file FD are at GPA.
type Section struct {
	FD             int
	GPA, Size, Off uint64
}

// Proxy is QEMU's end of a function's socket. One goroutine uses it.
type Proxy struct{ f *os.File }

// NewProxy returns a proxy on QEMU's end of the socket.
func NewProxy(f *os.File) *Proxy { return &Proxy{f} }

// Close closes QEMU's end, as it does when it ends or the function is unplugged.
func (p *Proxy) Close() error { return p.f.Close() }

// Send sends any message.
func (p *Proxy) Send(cmd int32, payload []byte, fds ...int) error {
	b := make([]byte, 16, 16+len(payload))
	binary.NativeEndian.PutUint32(b, uint32(cmd))
	binary.NativeEndian.PutUint64(b[8:], uint64(len(payload)))
	b = append(b, payload...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(int(p.f.Fd()), b, oob, nil, 0)
}

// answer waits for the answer to what was sent last.
func (p *Proxy) answer() (uint64, error) {
	var b [24]byte
	if _, err := io.ReadFull(p.f, b[:]); err != nil {
		return 0, err
	}
	if cmd := binary.NativeEndian.Uint32(b[:]); cmd != Return || binary.NativeEndian.Uint64(b[8:]) != 8 {
		return 0, fmt.Errorf("an answer with command %d", cmd)
	}
	return binary.NativeEndian.Uint64(b[16:]), nil
}

func (p *Proxy) ask(cmd int32, payload []byte) (uint64, error) {
	if err := p.Send(cmd, payload); err != nil {
		return 0, err
	}
	return p.answer()
}

// Memory tells of the guest's memory.
func (p *Proxy) Memory(sections ...Section) error {
	b := make([]byte, 192)
	var fds []int
	for i, s := range sections {
		binary.NativeEndian.PutUint64(b[8*i:], s.GPA)
		binary.NativeEndian.PutUint64(b[64+8*i:], s.Size)
		binary.NativeEndian.PutUint64(b[128+8*i:], s.Off)
		fds = append(fds, s.FD)
	}
	return p.Send(SyncMemory, b, fds...)
}

// IRQFDs sends the two descriptors for KVM that QEMU sends after the memory.
func (p *Proxy) IRQFDs() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	return errors.Join(p.Send(SetIRQFD, nil, fd, fd), unix.Close(fd))
}

func config(off uint32, v uint32, size int) []byte {
	b := make([]byte, 12)
	binary.NativeEndian.PutUint32(b, off)
	binary.NativeEndian.PutUint32(b[4:], v)
	binary.NativeEndian.PutUint32(b[8:], uint32(size))
	return b
}

// ReadConfig reads size bytes of configuration space.
func (p *Proxy) ReadConfig(off uint32, size int) (uint32, error) {
	v, err := p.ask(ConfigRead, config(off, 0, size))
	return uint32(v), err
}

// WriteConfig writes size bytes of configuration space.
func (p *Proxy) WriteConfig(off uint32, size int, v uint32) error {
	_, err := p.ask(ConfigWrite, config(off, v, size))
	return err
}

func bar(addr, v uint64, size int, mem bool) []byte {
	b := make([]byte, 24)
	binary.NativeEndian.PutUint64(b, addr)
	binary.NativeEndian.PutUint64(b[8:], v)
	binary.NativeEndian.PutUint32(b[16:], uint32(size))
	if mem {
		b[20] = 1
	}
	return b
}

// Read reads size bytes at a bus address; mem is false for an I/O port.
func (p *Proxy) Read(addr uint64, size int, mem bool) (uint64, error) {
	return p.ask(BARRead, bar(addr, 0, size, mem))
}

// Write writes size bytes at a bus address.
func (p *Proxy) Write(addr uint64, size int, mem bool, v uint64) error {
	_, err := p.ask(BARWrite, bar(addr, v, size, mem))
	return err
}

// Reset is a reset of the machine.
func (p *Proxy) Reset() error {
	_, err := p.ask(Reset, nil)
	return err
}

// Probe is what QEMU does when it makes the device, and then the firmware: identify it, size its BARs (as 7 registers, the
// last of which is none), put BAR 0 at base, BAR 2 at port 0xC000 and BAR 4 behind BAR 0, and switch decoding on. It returns
// what the BARs said of their size.
func (p *Proxy) Probe(base uint32) (sizes [7]uint32, err error) {
	for i := range sizes {
		off := uint32(0x10 + 4*i)
		old, e1 := p.ReadConfig(off, 4)
		e2 := p.WriteConfig(off, 4, 0xFFFFFFFF)
		v, e3 := p.ReadConfig(off, 4)
		e4 := p.WriteConfig(off, 4, old)
		if err := errors.Join(e1, e2, e3, e4); err != nil {
			return sizes, err
		}
		sizes[i] = v
	}
	return sizes, errors.Join(
		p.WriteConfig(0x10, 4, base), p.WriteConfig(0x14, 4, 0), p.WriteConfig(0x18, 4, 0xC000),
		p.WriteConfig(0x20, 4, base+0x20000), p.WriteConfig(0x24, 4, 0), p.WriteConfig(0x04, 2, 0x3),
	)
}
