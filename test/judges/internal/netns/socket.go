package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket receives and sends. What arrives is kept, in order, until it is asked for.
type Socket struct {
	file *os.File
	conn syscall.RawConn
	read func(fd int, buf []byte) ([]byte, error)
	send func(fd int, b []byte) error // nil: by file

	sending sync.Mutex
	mu      sync.Mutex
	queue   [][]byte
	err     error         // why nothing more comes
	more    chan struct{} // closed, and replaced, when either changes
}

// Packets opens a socket on an interface for whole frames, from the destination address on, without FCS. It receives what comes
// from the wire, not what is sent; a VLAN tag is where it was on the wire.
func (n *Namespace) Packets(name string) (*Socket, error) { return n.packets(name, false) }

// VNetHeaderLen is the length of the header in front of each frame of PacketsWithHeader, bytes.
const VNetHeaderLen = 10

// PacketsWithHeader opens a socket like Packets, but with a header in front of each frame, both ways, that says what is left to be
// done to it: its checksum, its segments (struct virtio_net_hdr; packet(7), PACKET_VNET_HDR).
func (n *Namespace) PacketsWithHeader(name string) (*Socket, error) { return n.packets(name, true) }

func (n *Namespace) packets(name string, header bool) (*Socket, error) {
	const all = unix.ETH_P_ALL&0xff<<8 | unix.ETH_P_ALL>>8 // in network byte order
	var fd int
	err := n.Do(func() (err error) {
		nic, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			// For a moment after an interface has got its carrier, its queue swallows what is sent.
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
			withHeader(fd, header),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: nic.Index}),
		)
		if err != nil {
			_ = unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("a packet socket on %s: %w", name, err)
	}
	if header {
		s, err := newSocket(fd, "packets of "+name, frameWithHeader)
		if err == nil {
			s.send = func(fd int, b []byte) error { return sendWithHeader(fd, b) }
		}
		return s, err
	}
	return newSocket(fd, "packets of "+name, frame)
}

func withHeader(fd int, on bool) error {
	const packetVNetHdr = 15 // PACKET_VNET_HDR of linux/if_packet.h
	if !on {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_PACKET, packetVNetHdr, 1)
}

// Echoes opens a socket for ICMP messages from and to an IPv4 address.
func (n *Namespace) Echoes(peer netip.Addr) (*Socket, error) {
	var fd int
	err := n.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: peer.As4()})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("an ICMP socket for %v: %w", peer, err)
	}
	return newSocket(fd, "echoes of "+peer.String(), message)
}

func newSocket(fd int, name string, read func(int, []byte) ([]byte, error)) (*Socket, error) {
	s := &Socket{file: os.NewFile(uintptr(fd), name), read: read, more: make(chan struct{})}
	var err error
	if s.conn, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	go s.collect()
	return s, nil
}

// collect receives until the socket is closed.
func (s *Socket) collect() {
	buf := make([]byte, 128<<10) // an IPv6 packet of 64 KiB has headers besides
	for {
		var got []byte
		var err error
		if waited := s.conn.Read(func(fd uintptr) bool {
			got, err = s.read(int(fd), buf)
			return err != unix.EAGAIN
		}); waited != nil {
			err = waited
		}
		s.mu.Lock()
		if err == nil {
			s.queue = append(s.queue, got)
		} else if err != unix.ENETDOWN && err != unix.EINTR { // an interface may go down and come up again
			s.err = err
		}
		stop := s.err != nil
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
		if stop {
			return
		}
	}
}

// Receive waits for the next that arrives.
func (s *Socket) Receive(ctx context.Context) ([]byte, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			got := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return got, nil
		}
		err, more := s.err, s.more
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Drain takes everything that has arrived and has not been asked for.
func (s *Socket) Drain() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.queue
	s.queue = nil
	return all
}

// Send sends a frame or a message as it is.
func (s *Socket) Send(b []byte) error {
	if s.send == nil {
		_, err := s.file.Write(b)
		return err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	var err error
	waited := s.conn.Write(func(fd uintptr) bool {
		err = s.send(int(fd), b)
		return err != unix.EAGAIN
	})
	return errors.Join(waited, err)
}

// sendWithHeader sends a frame with its header. One that is to be cut goes by the interface's queue: past it the kernel would drop what it
// has had to cut.
func sendWithHeader(fd int, b []byte) error {
	const gsoType = 1 // offset in the header
	if len(b) < VNetHeaderLen || b[gsoType] == 0 {
		_, err := unix.Write(fd, b)
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 0); err != nil {
		return err
	}
	_, err := unix.Write(fd, b)
	return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
}

// Close ends reception.
func (s *Socket) Close() error { return s.file.Close() }

// frame receives a frame, and puts the VLAN tag back that the kernel has taken out (packet(7), PACKET_AUXDATA).
func frame(fd int, buf []byte) ([]byte, error) { return receive(fd, buf, 0) }

// frameWithHeader receives a frame and the header in front of it.
func frameWithHeader(fd int, buf []byte) ([]byte, error) { return receive(fd, buf, VNetHeaderLen) }

func receive(fd int, buf []byte, header int) ([]byte, error) {
	control := make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.TpacketAuxdata{}))))
	n, nc, _, _, err := unix.Recvmsg(fd, buf, control, 0)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:nc])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			tpid := uint16(unix.ETH_P_8021Q)
			if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
				tpid = aux.Vlan_tpid
			}
			return tagged(buf[:n], header, tpid, aux.Vlan_tci), nil
		}
	}
	return append([]byte(nil), buf[:n]...), nil
}

// tagged is a frame, behind a header, with a VLAN tag after its addresses.
func tagged(b []byte, header int, tpid, tci uint16) []byte {
	addresses := header + 12
	if len(b) < addresses {
		return append([]byte(nil), b...)
	}
	t := append([]byte(nil), b[:addresses]...)
	t = binary.BigEndian.AppendUint16(t, tpid)
	t = binary.BigEndian.AppendUint16(t, tci)
	return append(t, b[addresses:]...)
}

// message receives an ICMP message, without the IPv4 header that the kernel puts before it.
func message(fd int, buf []byte) ([]byte, error) {
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	header := int(buf[0]&0xf) * 4
	if n < header {
		return nil, fmt.Errorf("an IPv4 packet of %d bytes with a header of %d", n, header)
	}
	return append([]byte(nil), buf[header:n]...), nil
}
