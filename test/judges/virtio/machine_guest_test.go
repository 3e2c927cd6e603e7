//go:build guest

package virtio

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/test/guest"
	"bare.wire/test/judges/internal/calls"
)

// card is a card in the machine; host and guest make the same list of them.
type card struct {
	cell
	index int
	name  string   // of the subtest
	more  string   // further properties of QEMU's device
	mtu   int      // of the TAP interface; 0: 1500
	port  bool     // behind a root port, from which it can be pulled
	peer  [6]byte  // hardware address of the other end; none: the host's
	wire  []string // QEMU's arguments for the wire, when it is no TAP interface
}

func (c card) slot() int { return firstSlot + c.index }

// address is where the card is in the guest. Behind a root port it is alone on a bus, which SeaBIOS numbers in the order of ports.
func (c card) address(bus int) string {
	if c.port {
		return fmt.Sprintf("0000:%02x:00.0", bus)
	}
	return fmt.Sprintf("0000:00:%02x.0", c.slot())
}

func (c card) mac() [6]byte           { return [6]byte{0x52, 0x54, 0, 0x77, 0, byte(c.index)} }
func (c card) tap() string            { return fmt.Sprintf("tap%d", c.index) }
func (c card) netdev() string         { return fmt.Sprintf("n%d", c.index) }
func (c card) device() string         { return fmt.Sprintf("c%d", c.index) }
func (c card) guestIP() [4]byte       { return [4]byte{10, 77, byte(c.index), 2} }
func (c card) hostIP() [4]byte        { return [4]byte{10, 77, byte(c.index), 1} }
func hardware(m [6]byte) string       { return net.HardwareAddr(m[:]).String() }
func onOff(b bool) string             { return map[bool]string{true: "on", false: "off"}[b] }
func cellCard(i int, c cell) card     { return card{cell: c, index: i, name: c.String()} }
func pause(d time.Duration)           { _ = realTime.Sleep(context.Background(), d) } // no end of a context, no error
func full() bool                      { return os.Getenv("BAREWIRE_FULL") != "" }
func times(few, many int) int         { return map[bool]int{false: few, true: many}[full()] }
func since(t time.Time) time.Duration { return realTime.Now().Sub(t).Round(time.Millisecond) }

// peerMAC is the hardware address of the other end.
func (c card) peerMAC() [6]byte {
	if c.peer != [6]byte{} {
		return c.peer
	}
	return [6]byte{2, 0, 0, 0x77, 0, byte(c.index)}
}

// realTime is the time of the machine: devices, kernels and other processes know no other.
var realTime = clock.Real()

// arguments are QEMU's for the card and its wire.
func (c card) arguments() []string {
	wire := c.wire
	if wire == nil {
		tap := fmt.Sprintf("tap,id=%s,ifname=%s,script=no,downscript=no,vhost=off", c.netdev(), c.tap())
		if c.pairs > 1 {
			tap += fmt.Sprintf(",queues=%d", c.pairs)
		}
		wire = []string{"-netdev", tap}
	}
	where := fmt.Sprintf("addr=%x", c.slot())
	var port []string
	if c.port {
		id := "r" + c.device()
		port = []string{"-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%d,addr=%x", id, c.slot(), c.slot(), c.slot())}
		where = "bus=" + id
	}
	return slices.Concat(wire, port, []string{"-device", c.deviceArgument(where)})
}

func (c card) deviceArgument(where string) string {
	d := fmt.Sprintf("virtio-net-pci,id=%s,netdev=%s,mac=%s,%s,romfile=,mrg_rxbuf=%s,event_idx=%s,packed=%s",
		c.device(), c.netdev(), hardware(c.mac()), where, onOff(c.mergeable), onOff(c.eventIdx), onOff(c.packed))
	switch {
	case c.legacy:
		d += ",disable-modern=on,disable-legacy=off"
	case c.sysfs:
		d += ",disable-legacy=on"
	default:
		d += ",disable-legacy=on,iommu_platform=on,ats=on"
	}
	if c.pairs > 1 {
		d += ",mq=on"
	}
	switch c.vectors {
	case allVectors:
		d += fmt.Sprintf(",vectors=%d", 2*c.pairs+2)
	default:
		d += fmt.Sprintf(",vectors=%d", c.vectors)
	}
	return d + c.more
}

// machine adds cards to a machine, and what is at the other ends of their wires.
func machine(t *testing.T, m guest.Machine, cards []card) guest.Machine {
	t.Helper()
	m.Modules = append(m.Modules, "virtio_pci")
	if m.IOMMU {
		m.Modules = append(m.Modules, "vfio-pci", "vfio_iommu_type1")
	}
	if m.CPUs == 0 {
		m.CPUs = 1 // the device is a thread of its own
	}
	for _, c := range cards {
		m.QEMU = append(m.QEMU, c.arguments()...)
	}
	if guest.Inside() {
		return m
	}
	h := newHost(t, cards)
	m.Answer = calls.Serve(h.serve)
	m.Wrap = append(h.ns.Enter(), m.Wrap...)
	return m
}
