// Package netns gives a test a network of its own on the host: a network namespace in which TAP interfaces are made, commands are
// run, and frames are sent and received as they are on the wire. Nothing in it is seen by the machine's own network, and all of it
// goes when the test does. It takes root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
//
// See namespaces(7), packet(7), netdevice(7) and the kernel's Documentation/networking/tuntap.rst.
package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace. It has one thread in it, which does what Do is given. Close gives it back.
type Namespace struct {
	work chan func()
	file *os.File // holds the namespace, and names it for others
}

// New makes a namespace with its loopback interface up, in which no interface makes IPv6 frames of its own.
func New() (*Namespace, error) {
	n := &Namespace{work: make(chan func())}
	begun := make(chan error)
	go n.live(begun)
	if err := <-begun; err != nil {
		return nil, fmt.Errorf("a network namespace: %w (it takes root)", err)
	}
	err := n.Do(func() error {
		// Neighbour discovery and the like would be frames that nobody sent.
		for _, which := range []string{"default", "all"} {
			name := "/proc/sys/net/ipv6/conf/" + which + "/disable_ipv6"
			if err := os.WriteFile(name, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return up("lo")
	})
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// live is the thread in the namespace. It is never given back to the Go runtime, so it ends with its goroutine.
func (n *Namespace) live(begun chan<- error) {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		n.file, err = os.Open("/proc/thread-self/ns/net")
	}
	begun <- err
	if err != nil {
		return
	}
	for f := range n.work {
		f()
	}
}

// Do runs f on the thread in the namespace. Sockets made there stay in the namespace wherever they are used.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	n.work <- func() { done <- f() }
	return <-done
}

// Enter is what is put before a command that shall run in the namespace, as long as this process lives.
func (n *Namespace) Enter() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), n.file.Fd())}
}

// Close ends the thread. The namespace goes when the last socket and the last process in it are gone.
func (n *Namespace) Close() {
	close(n.work)
	_ = n.file.Close()
}

// AddTAP makes a TAP interface that stays when nobody has it open, gives it a hardware address and an MTU, and brings it up.
func (n *Namespace) AddTAP(name string, mac net.HardwareAddr, mtu int) error {
	return n.addTAP(name, 0, mac, mtu)
}

// AddMultiQueueTAP makes a TAP interface that is opened once for each of several queues.
func (n *Namespace) AddMultiQueueTAP(name string, mac net.HardwareAddr, mtu int) error {
	return n.addTAP(name, unix.IFF_MULTI_QUEUE, mac, mtu)
}

func (n *Namespace) addTAP(name string, more uint16, mac net.HardwareAddr, mtu int) error {
	return n.Do(func() error {
		if err := makeTAP(name, more); err != nil {
			return fmt.Errorf("TAP interface %s: %w", name, err)
		}
		if err := change(name, unix.SIOCSIFHWADDR, func(r *ifreq) {
			r.sockaddr().Family = unix.ARPHRD_ETHER
			for i, b := range mac {
				r.sockaddr().Data[i] = int8(b)
			}
		}); err != nil {
			return fmt.Errorf("the hardware address of %s: %w", name, err)
		}
		if err := change(name, unix.SIOCSIFMTU, func(r *ifreq) { *(*int32)(unsafe.Pointer(&r.value)) = int32(mtu) }); err != nil {
			return fmt.Errorf("the MTU of %s: %w", name, err)
		}
		return up(name)
	})
}

func makeTAP(name string, more uint16) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | more)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
}

// SetAddress gives an interface an IPv4 address with its network.
func (n *Namespace) SetAddress(name string, p netip.Prefix) error {
	return n.Do(func() error {
		mask := net.CIDRMask(p.Bits(), 32)
		for _, s := range []struct {
			request uint
			value   [4]byte
		}{{unix.SIOCSIFADDR, p.Addr().As4()}, {unix.SIOCSIFNETMASK, [4]byte(mask)}} {
			if err := change(name, s.request, func(r *ifreq) {
				a := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.value))
				a.Family, a.Addr = unix.AF_INET, s.value
			}); err != nil {
				return fmt.Errorf("the address %v of %s: %w", p, name, err)
			}
		}
		return nil
	})
}

// ifreq is struct ifreq of netdevice(7).
type ifreq struct {
	name  [unix.IFNAMSIZ]byte
	value [24]byte
}

func (r *ifreq) sockaddr() *unix.RawSockaddr { return (*unix.RawSockaddr)(unsafe.Pointer(&r.value)) }

// change sets one property of an interface of the calling thread's namespace.
func change(name string, request uint, set func(r *ifreq)) error {
	if len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("%q is too long for the name of an interface", name)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var r ifreq
	for i := range len(name) {
		r.name[i] = name[i]
	}
	set(&r)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&r))); errno != 0 {
		return errno
	}
	return nil
}

func up(name string) error {
	err := change(name, unix.SIOCSIFFLAGS, func(r *ifreq) { *(*uint16)(unsafe.Pointer(&r.value)) = unix.IFF_UP | unix.IFF_RUNNING })
	if err != nil {
		return fmt.Errorf("bringing %s up: %w", name, err)
	}
	return nil
}
