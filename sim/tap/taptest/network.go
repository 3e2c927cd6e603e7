package taptest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const inside = "BAREWIRE_OWN_NETWORK"

// OwnNetwork runs the calling test in a process with a network of its own, as root of it, and returns true there: on the
// machine's own network nothing is touched. It takes root, or a kernel that lets anybody make user namespaces.
func OwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		quiet(t)
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread() // Pdeathsig goes by the thread
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a network of its own (which takes root, or kernel.unprivileged_userns_clone=1): %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("nothing ran:\n%s", out)
	}
	return false
}

// quiet keeps the kernel from sending frames by itself.
func quiet(t *testing.T) {
	t.Helper()
	err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6 is quiet
		t.Fatal(err)
	}
}

// Flags are the interface's (IFF_…); set, if not nil, changes them.
func Flags(t *testing.T, name string, set func(uint16) uint16) uint16 {
	t.Helper()
	var flags uint16
	ask(t, name, func(s int, ifr *unix.Ifreq) error {
		if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ifr); err != nil {
			return err
		}
		if set == nil {
			flags = ifr.Uint16()
			return nil
		}
		flags = set(ifr.Uint16())
		ifr.SetUint16(flags)
		return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
	})
	return flags
}

// Up brings an interface up with an address of a network of 256.
func Up(t *testing.T, name string, ip [4]byte) {
	t.Helper()
	ask(t, name, func(s int, ifr *unix.Ifreq) error {
		if err := ifr.SetInet4Addr(ip[:]); err != nil {
			return err
		}
		return unix.IoctlIfreq(s, unix.SIOCSIFADDR, ifr)
	})
	ask(t, name, func(s int, ifr *unix.Ifreq) error {
		if err := ifr.SetInet4Addr([]byte{255, 255, 255, 0}); err != nil {
			return err
		}
		return unix.IoctlIfreq(s, unix.SIOCSIFNETMASK, ifr)
	})
	Flags(t, name, func(f uint16) uint16 { return f | unix.IFF_UP })
}

// ask makes requests about an interface.
func ask(t *testing.T, name string, f func(s int, ifr *unix.Ifreq) error) {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		err = f(s, ifr)
	}
	if err != nil {
		t.Fatalf("interface %s: %v", name, err)
	}
}

// Stream sends n bytes of the pattern to a station by the kernel's TCP, receives as many as it sends, at the same time, and
// says what was wrong.
func Stream(station [4]byte, send, receive uint64) error {
	c, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: station[:], Port: Port})
	if err != nil {
		return err
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, &pattern{end: send})
		sent <- errors.Join(err, c.CloseWrite())
	}()
	got := &pattern{end: receive}
	n, err := io.Copy(got, c)
	if err == nil && uint64(n) != receive {
		err = fmt.Errorf("the kernel received %d bytes of %d", n, receive)
	}
	return errors.Join(err, <-sent)
}

// pattern is a stream of end bytes, to be read or to be held against what is written.
type pattern struct{ at, end uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.end {
		return 0, io.EOF
	}
	n := min(uint64(len(b)), p.end-p.at)
	for i := range b[:n] {
		b[i] = Byte(p.at + uint64(i))
	}
	p.at += n
	return int(n), nil
}

func (p *pattern) Write(b []byte) (int, error) {
	for i, x := range b {
		if want := Byte(p.at); x != want {
			return i, fmt.Errorf("byte %d of the kernel's stream is %#02x, want %#02x", p.at, x, want)
		}
		p.at++
	}
	return len(b), nil
}
