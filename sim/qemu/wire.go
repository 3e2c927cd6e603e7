package qemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The proxy's protocol is QEMU's own, in the byte order of the machine: a header (int32 command, 4 bytes padding, uint64 size),
// then size bytes; descriptors come with the header. QEMU is trusted to be QEMU, not to be right: every length is checked.

type command int32

const (
	cmdSyncSysmem  command = iota // guest memory has changed: sections and their descriptors
	cmdReturn                     // the answer to another
	cmdConfigWrite                // configuration space
	cmdConfigRead
	cmdBARWrite // a BAR, by bus address
	cmdBARRead
	cmdSetIRQFD // event descriptors for KVM, useless here
	cmdReset    // the machine is reset
	numCommands
)

var commandNames = [numCommands]string{"SYNC_SYSMEM", "RET", "PCI_CFGWRITE", "PCI_CFGREAD", "BAR_WRITE", "BAR_READ", "SET_IRQFD", "DEVICE_RESET"}

func (c command) String() string {
	if c >= 0 && c < numCommands {
		return commandNames[c]
	}
	return fmt.Sprintf("command %d", int32(c))
}

// payloads are the sizes of what follows the header, bytes; -1: QEMU never sends it.
var payloads = [numCommands]int{192, -1, 12, 12, 24, 24, 0, 0}

const (
	headerLen   = 16
	returnLen   = 8
	maxPayload  = 192
	maxSections = 8 // of guest memory, and so of descriptors
)

// decodeHeader returns the command and how many bytes follow.
func decodeHeader(h *[headerLen]byte) (command, int, error) {
	cmd, size := command(int32(binary.NativeEndian.Uint32(h[0:]))), binary.NativeEndian.Uint64(h[8:])
	if cmd < 0 || cmd >= numCommands || payloads[cmd] < 0 {
		return 0, 0, fmt.Errorf("proxy protocol: unexpected %v", cmd)
	}
	if size != uint64(payloads[cmd]) {
		return 0, 0, fmt.Errorf("proxy protocol: %v of %d bytes, want %d: this QEMU speaks another version", cmd, size, payloads[cmd])
	}
	return cmd, int(size), nil
}

// configAccess is an access to configuration space.
type configAccess struct {
	off  int
	size int // 1, 2 or 4
	val  uint32
}

func decodeConfig(b []byte) (a configAccess, err error) {
	if len(b) != payloads[cmdConfigRead] {
		return a, fmt.Errorf("proxy protocol: configuration access of %d bytes", len(b))
	}
	off, size := binary.NativeEndian.Uint32(b[0:]), int32(binary.NativeEndian.Uint32(b[8:]))
	if size != 1 && size != 2 && size != 4 || off > 0xFFF {
		return a, fmt.Errorf("proxy protocol: %d bytes of configuration space at %#x", size, off)
	}
	return configAccess{off: int(off), size: int(size), val: binary.NativeEndian.Uint32(b[4:])}, nil
}

// barAccess is an access to a BAR by its bus address.
type barAccess struct {
	addr uint64
	val  uint64
	size int // 1, 2, 4 or 8
	mem  bool
}

func decodeBAR(b []byte) (a barAccess, err error) {
	if len(b) != payloads[cmdBARRead] {
		return a, fmt.Errorf("proxy protocol: BAR access of %d bytes", len(b))
	}
	size := binary.NativeEndian.Uint32(b[16:])
	if size != 1 && size != 2 && size != 4 && size != 8 {
		return a, fmt.Errorf("proxy protocol: BAR access of size %d", size)
	}
	return barAccess{
		addr: binary.NativeEndian.Uint64(b[0:]), val: binary.NativeEndian.Uint64(b[8:]), size: int(size), mem: b[20] != 0,
	}, nil
}

// section is a piece of the guest's RAM: size bytes from off on of a file are at gpa.
type section struct {
	gpa, size, off uint64
}

// decodeSections returns the first n sections of a SYNC_SYSMEM.
func decodeSections(b []byte, n int) ([]section, error) {
	if len(b) != payloads[cmdSyncSysmem] || n < 0 || n > maxSections {
		return nil, fmt.Errorf("proxy protocol: memory map of %d bytes with %d descriptors", len(b), n)
	}
	list := make([]section, n)
	for i := range list {
		at := func(field int) uint64 { return binary.NativeEndian.Uint64(b[8*(maxSections*field+i):]) }
		s := section{gpa: at(0), size: at(1), off: at(2)}
		if s.size == 0 || s.gpa+s.size < s.gpa || s.off+s.size < s.off || s.off+s.size > 1<<62 {
			return nil, fmt.Errorf("proxy protocol: section %d of %#x bytes at %#x, from %#x of its file", i, s.size, s.gpa, s.off)
		}
		list[i] = s
	}
	return list, nil
}

// message is one message of QEMU's. Whoever has it closes its descriptors.
type message struct {
	cmd  command
	data []byte // valid until the next receive
	fds  []int
}

func (m *message) close() {
	for _, fd := range m.fds {
		_ = unix.Close(fd)
	}
	m.fds = nil
}

// conn is our end of a proxy's socket.
type conn struct {
	c   *net.UnixConn
	buf [maxPayload]byte
	oob []byte
}

func newConn(c *net.UnixConn) *conn {
	return &conn{c: c, oob: make([]byte, unix.CmsgSpace(4*maxSections))}
}

// socketPair makes a socket with two ends: ours, and QEMU's, which it inherits. Neither has a name that would have to be removed.
func socketPair(what string) (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%s socket: %w", what, err)
	}
	theirs = os.NewFile(uintptr(pair[1]), what)
	f := os.NewFile(uintptr(pair[0]), what)
	defer f.Close() // net has a descriptor of its own
	c, err := net.FileConn(f)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("%s socket: %w", what, err)
	}
	return c.(*net.UnixConn), theirs, nil // of AF_UNIX it is nothing else
}

// receive returns the next message. The error is io.EOF when QEMU has closed its end.
func (c *conn) receive() (*message, error) {
	m := &message{}
	var h [headerLen]byte
	if err := c.fill(h[:], m); err != nil {
		m.close()
		return nil, err
	}
	cmd, size, err := decodeHeader(&h)
	if err == nil {
		m.cmd, m.data = cmd, c.buf[:size]
		err = c.fill(m.data, m)
	}
	if err == nil && len(m.fds) > maxSections {
		err = fmt.Errorf("proxy protocol: %v with %d descriptors", cmd, len(m.fds))
	}
	if err != nil {
		m.close()
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("proxy protocol: ended inside a message: %w", io.ErrUnexpectedEOF)
		}
		return nil, err
	}
	return m, nil
}

// fill reads len(b) bytes and keeps the descriptors that come with them.
func (c *conn) fill(b []byte, m *message) error {
	for off := 0; off < len(b); {
		n, oobn, flags, _, err := c.c.ReadMsgUnix(b[off:], c.oob)
		if oobn > 0 {
			fds, ferr := descriptors(c.oob[:oobn])
			m.fds = append(m.fds, fds...)
			err = errors.Join(err, ferr)
		}
		switch {
		case err != nil:
			if errors.Is(err, io.EOF) && off > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		case flags&unix.MSG_CTRUNC != 0:
			return errors.New("proxy protocol: more descriptors than there are sections")
		case n == 0:
			return io.EOF
		}
		off += n
	}
	return nil
}

// descriptors are those in a control message.
func descriptors(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("proxy protocol: control message: %w", err)
	}
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return fds, fmt.Errorf("proxy protocol: control message: %w", err)
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// answer sends the answer to the message received last.
func (c *conn) answer(v uint64) error {
	var b [headerLen + returnLen]byte
	binary.NativeEndian.PutUint32(b[0:], uint32(cmdReturn))
	binary.NativeEndian.PutUint64(b[8:], returnLen)
	binary.NativeEndian.PutUint64(b[headerLen:], v)
	_, err := c.c.Write(b[:])
	return err
}

func (c *conn) close() { _ = c.c.Close() }
