//go:build guest

package pci_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/pci"
	"bare.wire/test/guest"
)

// guestCard is where the guest's network card is.
const guestCard = "0000:00:04.0"

// TestGuestBinding has a real kernel bind, refuse and give back: what pcitest's kernel is made after.
func TestGuestBinding(t *testing.T) {
	guest.Run(t, guest.Machine{
		IOMMU:   true,
		Modules: []string{"virtio_net", "vfio-pci", "vfio_iommu_type1", "8021q"},
		QEMU:    []string{"-device", "virtio-net-pci,addr=4,disable-legacy=on,iommu_platform=on"},
	}, func(t *testing.T) {
		h, a := &pci.Host{}, addr(t, guestCard)
		t.Run("it is found with its interface and its group", func(t *testing.T) {
			d := here(t)
			if d.Driver != "virtio-pci" || len(d.Interfaces) != 1 || d.Group < 0 || d.NoIOMMU || d.Resources[4].Size() == 0 {
				t.Errorf("%+v", d)
			}
			config, err := h.ReadConfigSpace(a)
			if err != nil {
				t.Fatal(err)
			}
			list, err := pci.Capabilities(config)
			if _, ok := pci.FindCapability(list, pci.CapMSIX); err != nil || !ok {
				t.Errorf("capabilities: %+v, %v", list, err)
			}
		})
		t.Run("nobody uses it while it is down", func(t *testing.T) {
			if use := h.InUse(here(t)); len(use) != 0 {
				t.Errorf("in use: %q", use)
			}
		})
		t.Run("it is bound and given back, twice", func(t *testing.T) {
			for range 2 {
				if err := h.Bind(t.Context(), a, pci.BindOptions{Owner: &pci.Owner{UID: 1000, GID: 1000}}); err != nil {
					t.Fatal(err)
				}
				d := here(t)
				info, err := os.Stat(d.GroupNode())
				if d.Driver != "vfio-pci" || d.Override != "vfio-pci" || err != nil || info.Mode().Perm() != 0o660 || info.Sys().(*syscall.Stat_t).Uid != 1000 {
					t.Fatalf("%+v, node %v, %v", d, info, err)
				}
				if err := h.Restore(t.Context(), a, pci.BindOptions{}); err != nil {
					t.Fatal(err)
				}
				if d := here(t); d.Driver != "virtio-pci" || d.Override != "" || len(d.Interfaces) != 1 {
					t.Fatalf("%+v", d)
				}
			}
		})
		t.Run("it is not taken from the process that has it open", func(t *testing.T) { heldOpen(t, h, a) })
		t.Run("a driver that does not want it loses it again", func(t *testing.T) {
			// The driver of bridges' ports is built into every kernel.
			err := h.Bind(t.Context(), a, pci.BindOptions{Driver: "pcieport"})
			if err == nil || !strings.Contains(err.Error(), "it is with virtio-pci again") {
				t.Errorf("error: %v", err)
			}
			if d := here(t); d.Driver != "virtio-pci" || d.Override != "" {
				t.Errorf("%+v", d)
			}
		})
		t.Run("its uses are seen", func(t *testing.T) { usesAreSeen(t, h, a) })
	})
}

// here is the card as it is now.
func here(t *testing.T) *pci.Device {
	t.Helper()
	d, err := (&pci.Host{}).Device(addr(t, guestCard))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// heldOpen: a child process has the group open; this process itself does not count.
func heldOpen(t *testing.T, h *pci.Host, a pci.Address) {
	if err := h.Bind(t.Context(), a, pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
	node, err := os.OpenFile(here(t).GroupNode(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/proc/self/exe", "-test.run=^TestHolderOfFiles$")
	child.Env = append(os.Environ(), "BAREWIRE_HOLDER=1")
	child.ExtraFiles = []*os.File{node}
	child.Stdin = reader
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(node.Close(), reader.Close()); err != nil {
		t.Fatal(err)
	}
	err = h.Restore(t.Context(), a, pci.BindOptions{})
	if !errors.Is(err, pci.ErrInUse) || !strings.Contains(err.Error(), "has /dev/vfio/") {
		t.Errorf("while it is open: %v", err)
	}
	if err := errors.Join(writer.Close(), child.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := h.Restore(t.Context(), a, pci.BindOptions{}); err != nil {
		t.Fatal(err)
	}
}

// usesAreSeen gives the interface a use after the other, with a real kernel's tables to tell of it.
func usesAreSeen(t *testing.T, h *pci.Host, a pci.Address) {
	name := here(t).Interfaces[0].Name
	for _, step := range []struct {
		do   func() error
		says string
	}{
		{func() error { return setAddress(name, [4]byte{10, 7, 0, 1}) }, name + " has address 10.7.0.1"},
		{func() error { return setUp(name) }, "route to 10.0.0.0/8 through " + name},
		{func() error { return addVLAN(name, 5) }, "VLAN " + name + ".5 on " + name},
		{func() error { return listenRaw(t, name) }, "packet sockets on " + name},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.says, err)
		}
		if use := h.InUse(here(t)); !slices.ContainsFunc(use, func(s string) bool { return strings.HasPrefix(s, step.says) }) {
			t.Errorf("in use: %q; want %q", use, step.says)
		}
		if err := h.Bind(context.Background(), a, pci.BindOptions{}); !errors.Is(err, pci.ErrInUse) {
			t.Errorf("%s: %v", step.says, err)
		}
	}
	if d := here(t); d.Driver != "virtio-pci" {
		t.Fatalf("%+v", d)
	}
	if err := h.Bind(t.Context(), a, pci.BindOptions{Force: true}); err != nil {
		t.Fatalf("by force: %v", err)
	}
	if d := here(t); d.Driver != "vfio-pci" {
		t.Errorf("by force: %+v", d)
	}
}

// TestGuestBindingWithoutAnIOMMU: only when it is allowed, twice over.
func TestGuestBindingWithoutAnIOMMU(t *testing.T) {
	guest.Run(t, guest.Machine{
		Modules: []string{"virtio_net", "vfio-pci"},
		QEMU:    []string{"-device", "virtio-net-pci,addr=4,disable-legacy=on"},
	}, func(t *testing.T) {
		h, a := &pci.Host{}, addr(t, guestCard)
		if err := h.Bind(t.Context(), a, pci.BindOptions{}); !errors.Is(err, pci.ErrNoIOMMU) || !strings.Contains(err.Error(), "intel_iommu=on") {
			t.Errorf("not allowed: %v", err)
		}
		opt := pci.BindOptions{AllowNoIOMMU: true}
		parameter, err := filepath.Glob("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
		if err != nil || len(parameter) == 0 {
			if err := h.Bind(t.Context(), a, opt); !errors.Is(err, pci.ErrNoIOMMU) || !strings.Contains(err.Error(), "does not know the mode") {
				t.Errorf("a kernel that cannot: %v", err)
			}
			return
		}
		if err := h.Bind(t.Context(), a, opt); !errors.Is(err, pci.ErrNoIOMMU) || !strings.Contains(err.Error(), "echo Y") {
			t.Errorf("a kernel that may not: %v", err)
		}
		if err := os.WriteFile(parameter[0], []byte("Y"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Bind(t.Context(), a, opt); err != nil {
			t.Fatal(err)
		}
		d := here(t)
		if _, err := os.Stat(d.GroupNode()); !d.NoIOMMU || err != nil {
			t.Errorf("%+v, %v", d, err)
		}
		if err := h.Restore(t.Context(), a, pci.BindOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := here(t); d.Driver != "virtio-pci" || d.Group >= 0 {
			t.Errorf("%+v", d)
		}
	})
}

// TestHolderOfFiles is the process that has a file open, in the test above.
func TestHolderOfFiles(t *testing.T) {
	if os.Getenv("BAREWIRE_HOLDER") == "" {
		return
	}
	var b [1]byte
	_, _ = os.Stdin.Read(b[:]) // until the parent closes its end
	os.Exit(0)
}

// The little of ip(8) that is needed (netdevice(7), vlan: linux/if_vlan.h).

func control(request uintptr, name string, fill func(r *unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := fill(r); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, uint(request), r)
}

func setAddress(name string, a [4]byte) error {
	return control(unix.SIOCSIFADDR, name, func(r *unix.Ifreq) error { return r.SetInet4Addr(a[:]) })
}

func setUp(name string) error {
	return control(unix.SIOCSIFFLAGS, name, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil })
}

// addVLAN: struct vlan_ioctl_args has the command, two names' space, and a number.
func addVLAN(name string, id int) error {
	var args struct {
		command int32
		device  [24]byte
		u       [24]byte
		qos     int16
	}
	copy(args.device[:], name)
	args.u[0] = byte(id)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFVLAN, uintptr(unsafe.Pointer(&args))); errno != 0 {
		return errno
	}
	return nil
}

func listenRaw(t *testing.T, name string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.Cleanup(func() { unix.Close(fd) })
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: i.Index})
}
