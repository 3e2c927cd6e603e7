//go:build guest

package linux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nic is a network interface of the guest's kernel.
type nic string

// request is struct ifreq of netdevice(7), with a pointer or a number in it.
type request struct {
	name [unix.IFNAMSIZ]byte
	data [24]byte
}

func (n nic) ioctl(op uintptr, r *request) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	copy(r.name[:unix.IFNAMSIZ-1], n)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), op, uintptr(unsafe.Pointer(r))); errno != 0 {
		return errno
	}
	return nil
}

// ethtool carries out one of the commands of linux/ethtool.h; words are the command's structure.
func (n nic) ethtool(words []uint32) error {
	var r request
	*(*unsafe.Pointer)(unsafe.Pointer(&r.data)) = unsafe.Pointer(&words[0])
	if err := n.ioctl(unix.SIOCETHTOOL, &r); err != nil {
		return fmt.Errorf("ethtool command %#x on %s: %w", words[0], n, err)
	}
	return nil
}

// Commands and string sets that x/sys does not name.
const (
	cmdTest        = 0x1a
	setTest        = 0
	setStats       = 1
	setFeatures    = 4
	offline        = 1
	failed         = 2
	stringLength   = 32
	cmdModuleInfo  = 0x42
	cmdModuleBytes = 0x43
	cmdEEPROM      = 0x0b
	cmdSetEEPROM   = 0x0c
	cmdIndirection = 0x46
)

// strings returns the names of a set.
func (n nic) strings(set uint32) ([]string, error) {
	info := []uint32{unix.ETHTOOL_GSSET_INFO, 0, 1 << set, 0, 0}
	if err := n.ethtool(info); err != nil {
		return nil, err
	}
	count := int(info[4])
	words := make([]uint32, 3+count*stringLength/4)
	words[0], words[1], words[2] = unix.ETHTOOL_GSTRINGS, set, info[4]
	if err := n.ethtool(words); err != nil {
		return nil, err
	}
	text := unsafe.Slice((*byte)(unsafe.Pointer(&words[3:][0])), count*stringLength)
	names := make([]string, count)
	for i := range names {
		name, _, _ := bytes.Cut(text[i*stringLength:(i+1)*stringLength], []byte{0})
		names[i] = string(name)
	}
	return names, nil
}

// numbers carries out a command that fills one 64-bit number for each string of a set.
func (n nic) numbers(cmd, set, flags uint32, head int) (map[string]uint64, uint32, error) {
	names, err := n.strings(set)
	if err != nil {
		return nil, 0, err
	}
	words := make([]uint32, head+2*len(names))
	words[0], words[1] = cmd, flags
	if cmd == unix.ETHTOOL_GSTATS {
		words[1] = uint32(len(names))
	} else {
		words[3] = uint32(len(names))
	}
	if err := n.ethtool(words); err != nil {
		return nil, 0, err
	}
	all := map[string]uint64{}
	for i, name := range names {
		all[name] = uint64(words[head+2*i]) | uint64(words[head+2*i+1])<<32
	}
	return all, words[1], nil
}

// statistics are what `ethtool -S` prints.
func (n nic) statistics() (map[string]uint64, error) {
	all, _, err := n.numbers(unix.ETHTOOL_GSTATS, setStats, 0, 2)
	return all, err
}

// selfTest is `ethtool -t NIC offline`; an error names the parts that failed.
func (n nic) selfTest() (map[string]uint64, error) {
	all, flags, err := n.numbers(cmdTest, setTest, offline, 4)
	if err != nil {
		return nil, err
	}
	var bad []string
	parts := map[string]uint64{}
	for name, v := range all {
		parts[strings.TrimSpace(name)] = v
		if v != 0 {
			bad = append(bad, fmt.Sprintf("%s: %d", strings.TrimSpace(name), v))
		}
	}
	if flags&failed != 0 || len(bad) > 0 {
		return parts, fmt.Errorf("self-test failed: %s", strings.Join(bad, ", "))
	}
	return parts, nil
}

// features says which offloads are on.
func (n nic) features() (map[string]bool, error) {
	names, err := n.strings(setFeatures)
	if err != nil {
		return nil, err
	}
	blocks := (len(names) + 31) / 32
	words := make([]uint32, 2+4*blocks)
	words[0], words[1] = unix.ETHTOOL_GFEATURES, uint32(blocks)
	if err := n.ethtool(words); err != nil {
		return nil, err
	}
	on := map[string]bool{}
	for i, name := range names {
		on[name] = words[2+i/32*4+2]>>(i%32)&1 != 0 // available, requested, active, never changed
	}
	return on, nil
}

// setFeature turns one offload on or off.
func (n nic) setFeature(name string, on bool) error {
	names, err := n.strings(setFeatures)
	if err != nil {
		return err
	}
	blocks := (len(names) + 31) / 32
	words := make([]uint32, 2+2*blocks) // valid, requested
	words[0], words[1] = unix.ETHTOOL_SFEATURES, uint32(blocks)
	for i, s := range names {
		if s != name {
			continue
		}
		words[2+i/32*2] = 1 << (i % 32)
		if on {
			words[2+i/32*2+1] = 1 << (i % 32)
		}
		return n.ethtool(words)
	}
	return fmt.Errorf("%s has no feature %s", n, name)
}

// indirection returns where RSS leads and its key.
func (n nic) indirection() (table []uint32, key []byte, err error) {
	words := make([]uint32, 6)
	words[0] = cmdIndirection
	if err := n.ethtool(words); err != nil {
		return nil, nil, err
	}
	entries, size := words[2], words[3]
	words = make([]uint32, 6+entries+(size+3)/4)
	words[0], words[2], words[3] = cmdIndirection, entries, size
	if err := n.ethtool(words); err != nil {
		return nil, nil, err
	}
	rest := words[6+entries:]
	return words[6 : 6+entries], unsafe.Slice((*byte)(unsafe.Pointer(&rest[0])), size), nil
}

// module reads the first bytes of the SFP+'s page.
func (n nic) module(count int) ([]byte, error) {
	words := make([]uint32, 4+(count+3)/4)
	words[0], words[3] = cmdModuleBytes, uint32(count)
	if err := n.ethtool(words); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[4])), count), nil
}

// eeprom reads bytes of the card's EEPROM.
func (n nic) eeprom(offset, count int) ([]byte, error) {
	words := make([]uint32, 4+(count+3)/4)
	words[0], words[2], words[3] = cmdEEPROM, uint32(offset), uint32(count)
	if err := n.ethtool(words); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[4])), count), nil
}

// setEEPROM writes bytes of the card's EEPROM, and the driver the checksum.
func (n nic) setEEPROM(offset int, b []byte) error {
	words := make([]uint32, 4+(len(b)+3)/4)
	words[0], words[1], words[2], words[3] = cmdSetEEPROM, 0x10fb8086, uint32(offset), uint32(len(b))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[4])), len(b)), b)
	return n.ethtool(words)
}

// link says whether the driver sees a link.
func (n nic) link() (bool, error) {
	words := []uint32{unix.ETHTOOL_GLINK, 0}
	err := n.ethtool(words)
	return words[1] != 0, err
}

// channels is how many pairs of queues are in use.
func (n nic) channels() (int, error) {
	words := make([]uint32, 9)
	words[0] = unix.ETHTOOL_GCHANNELS
	err := n.ethtool(words)
	return int(words[8]), err
}

// up brings the interface up, or down.
func (n nic) up(on bool) error {
	var r request
	if err := n.ioctl(unix.SIOCGIFFLAGS, &r); err != nil {
		return err
	}
	flags := binary.NativeEndian.Uint16(r.data[:]) &^ unix.IFF_UP
	if on {
		flags |= unix.IFF_UP
	}
	binary.NativeEndian.PutUint16(r.data[:], flags)
	return n.ioctl(unix.SIOCSIFFLAGS, &r)
}

func (n nic) setMTU(mtu int) error {
	var r request
	binary.NativeEndian.PutUint32(r.data[:], uint32(mtu))
	return n.ioctl(unix.SIOCSIFMTU, &r)
}

// hardwareAddress is the interface's MAC address.
func (n nic) hardwareAddress() (mac [6]byte, err error) {
	var r request
	if err := n.ioctl(unix.SIOCGIFHWADDR, &r); err != nil {
		return mac, err
	}
	copy(mac[:], r.data[2:])
	return mac, nil
}

// setAddress gives the interface an IPv4 address with a network of 24 bits.
func (n nic) setAddress(a netip.Addr) error {
	for _, s := range []struct {
		op   uintptr
		addr [4]byte
	}{{unix.SIOCSIFADDR, a.As4()}, {unix.SIOCSIFNETMASK, [4]byte{255, 255, 255, 0}}} {
		var r request
		binary.NativeEndian.PutUint16(r.data[:], unix.AF_INET)
		copy(r.data[4:], s.addr[:])
		if err := n.ioctl(s.op, &r); err != nil {
			return fmt.Errorf("address of %s: %w", n, err)
		}
	}
	return nil
}

// addVLAN makes an interface for a VLAN id on top of this one; it is named NIC.ID.
func (n nic) addVLAN(id int) (nic, error) {
	// struct vlan_ioctl_args: command, device, union.
	var args struct {
		cmd  int32
		dev  [24]byte
		id   int32
		rest [24]byte
	}
	args.id = int32(id) // command 0: add
	copy(args.dev[:], n)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(s)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCSIFVLAN, uintptr(unsafe.Pointer(&args))); errno != 0 {
		return "", fmt.Errorf("VLAN %d on %s: %w", id, n, errno)
	}
	for _, name := range []string{fmt.Sprintf("%s.%d", n, id), fmt.Sprintf("vlan%d", id), fmt.Sprintf("%s.%04d", n, id), fmt.Sprintf("vlan%04d", id)} {
		if v := nic(name); v.ioctl(unix.SIOCGIFFLAGS, new(request)) == nil {
			return v, nil
		}
	}
	return "", fmt.Errorf("VLAN %d on %s: made, and not to be found", id, n)
}
