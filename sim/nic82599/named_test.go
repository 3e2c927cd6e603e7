package nic82599

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

// scenes are short runs of two cards and what is seen in them. Each named fault has one in which it shows.
var scenes = map[string]func(r *rig) string{
	"mask of RAH": func(r *rig) string { r.a.wr(reg.RAH(3), 0xFFFFFFFF); return fmt.Sprintf("%08X", r.a.rd(reg.RAH(3))) },
	"EICS": func(r *rig) string {
		r.a.rd(reg.EICR)
		r.a.wr(reg.EICS, 1<<3)
		return fmt.Sprintf("%08X", r.a.rd(reg.EICR))
	},
	"link":         sceneLink,
	"vectors":      sceneVectors,
	"transmit":     sceneTransmit,
	"frames":       sceneFrames,
	"jumbo":        sceneJumbo,
	"segmentation": sceneSegmentation,
	"checksums":    sceneChecksums,
	"bad checksum": sceneBadChecksum,
	"tags":         sceneTags,
	"RSS":          sceneRSS,
	"multicast":    sceneMulticast,
	"addresses":    sceneAddresses,
	"counters":     sceneCounters,
	"EEPROM":       sceneEEPROM,
	"module":       sceneModule,
	"loopback":     sceneLoopback,
	"pause":        scenePause,
}

// sceneOf says in which scene a fault shows.
var sceneOf = map[string]string{
	"rah-mask": "mask of RAH", "eics": "EICS", "no-lsc": "link", "no-link": "link", "no-auto-mask": "vectors", "no-queue-irq": "vectors",
	"no-dd": "transmit", "no-tx-dd": "transmit", "no-rx-dd": "frames", "eeprom-sum": "EEPROM", "rx-byte-64": "frames", "tx-byte-64": "frames",
	"rx-length": "frames", "rx-jumbo": "jumbo", "tso-segment-size": "segmentation", "tso-ip-id": "segmentation", "tso-flags": "segmentation",
	"rss-queue": "RSS", "rss-hash": "RSS", "vlan-byte-order": "tags", "vlan-no-insert": "tags", "vlan-filter-open": "tags", "vfta-bit": "tags",
	"rx-checksum-flag": "bad checksum", "rx-checksum-lost": "bad checksum", "tx-checksum": "checksums", "tx-ip-checksum": "checksums",
	"clear-on-read": "counters", "count-twice": "counters", "queue-count-twice": "counters", "mta-bit": "multicast",
	"address-bit": "addresses", "no-loopback": "loopback", "sfp-byte": "module", "no-pause": "pause",
}

// take returns what has arrived in all queues of d.
func (d *mini) take() string {
	var s strings.Builder
	for q := range d.rx {
		for {
			f, w0, w1 := d.recv(q)
			if f == nil {
				break
			}
			fmt.Fprintf(&s, "q%d %08X %016X %x\n", q, w0>>32, w1, f)
		}
	}
	return s.String()
}

func sceneLink(r *rig) string {
	r.a.rd(reg.EICR)
	r.a.card.SetCable(false)
	r.run(10 * time.Microsecond)
	cause := r.a.rd(reg.EICR)
	r.a.card.SetCable(true)
	r.run(5 * time.Millisecond)
	r.a.rd(reg.LINKS)
	return fmt.Sprintf("%08X %08X", cause, r.a.rd(reg.LINKS))
}

func sceneVectors(r *rig) string {
	d := r.b
	d.wr(reg.GPIE, reg.GPIE_MSIX_MODE|reg.GPIE_EIAME)
	d.wr(reg.EIAM_EX(0), 0xFFFFFFFF)
	d.wr(reg.EIAC, reg.EICR_RTX_QUEUE)
	d.wr(reg.IVAR(0), 0x81)
	n := 0
	d.card.OnInterrupt(func(v int) { n += 100*v + 1 })
	d.wr(reg.EIMS_EX(0), 2)
	for i := range 3 {
		r.a.send(0, frameTo(macB, 60, byte(i)), 0, true)
		r.run(20 * time.Microsecond)
	}
	d.card.OnInterrupt(nil)
	return fmt.Sprintf("%d, mask %X", n, d.rd(reg.EIMS_EX(0)))
}

func sceneTransmit(r *rig) string {
	r.a.send(0, frameTo(macB, 60, 1), 0, true)
	r.run(100 * time.Microsecond)
	return fmt.Sprint(load(r.a.tx[0].ring[8:])&reg.TXD_DD != 0)
}

func sceneFrames(r *rig) string {
	for _, n := range []int{60, 64, 65, 200, 1514} {
		r.a.send(0, frameTo(macB, n, byte(n)), 0, true)
	}
	r.run(100 * time.Microsecond)
	return r.b.take()
}

func sceneJumbo(r *rig) string {
	r.a.send(0, frameTo(macB, 9000, 7), 0, true)
	r.run(100 * time.Microsecond)
	return r.b.take()
}

var tcpPair = [2]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.2:2000")}

func (d *mini) sendTCP(payload, mss int, flags uint64) {
	f := ipFrame(tcpPair[0], tcpPair[1], protoTCP, payload)
	f[47] |= 0x09 // FIN, PSH
	pseudo(f, mss == 0)
	n := len(f)
	if mss > 0 {
		n = payload
		flags |= reg.TXD_TSE
	}
	d.putContext(14, 20, 20, mss, l4TCP, true)
	d.putFrame(f, n, flags|reg.TXD_IXSM|reg.TXD_TXSM)
}

func sceneSegmentation(r *rig) string {
	r.a.sendTCP(2500, 1000, 0)
	r.run(100 * time.Microsecond)
	return r.b.take()
}

func sceneChecksums(r *rig) string {
	r.a.sendTCP(100, 0, 0)
	r.run(100 * time.Microsecond)
	return r.b.take()
}

func sceneBadChecksum(r *rig) string {
	f := ipFrame(tcpPair[0], tcpPair[1], protoTCP, 100)
	f[60]++
	r.a.send(0, f, 0, true)
	r.run(100 * time.Microsecond)
	return r.b.take()
}

// sceneTags sends one frame whose tag the card puts in, and two that have theirs, of which the filter lets one through.
func sceneTags(r *rig) string {
	r.b.or(reg.VLNCTRL, reg.VLNCTRL_VFE)
	for _, vid := range []int{0x044, 0x123} {
		r.b.or(reg.VFTA(vid>>5), 1<<(vid&31))
	}
	r.a.sendTCP(100, 0, reg.TXD_VLE)
	for _, vid := range []byte{0x23, 0x24} {
		f := frameTo(macB, 100, vid)
		copy(f[12:], []byte{0x81, 0x00, 0x31, vid})
		r.a.send(0, f, 0, true)
	}
	r.run(100 * time.Microsecond)
	return r.b.take()
}

func sceneRSS(r *rig) string {
	for i := range 4 {
		src := netip.AddrPortFrom(tcpPair[0].Addr(), uint16(1000+i))
		r.a.send(0, ipFrame(src, tcpPair[1], protoTCP, 20), 0, true)
	}
	r.run(100 * time.Microsecond)
	return r.b.take()
}

func sceneMulticast(r *rig) string {
	group := [6]byte{1, 0, 0x5E, 1, 2, 3}
	h := (uint32(group[4])>>4 | uint32(group[5])<<4) & 0xFFF // §8.2.3.7.7
	r.b.wr(reg.MTA(int(h>>5)), 1<<(h&31))
	r.b.wr(reg.MCSTCTRL, reg.MCSTCTRL_MFE)
	r.a.send(0, frameTo(group, 60, 1), 0, true)
	r.run(100 * time.Microsecond)
	return r.b.take()
}

func sceneAddresses(r *rig) string {
	other := macB
	other[5] ^= 1
	r.a.send(0, frameTo(other, 60, 1), 0, true)
	r.run(100 * time.Microsecond)
	return r.b.take()
}

func sceneCounters(r *rig) string {
	d := r.b
	sceneFrames(r)
	return fmt.Sprint(d.rd(reg.GPRC), d.rd(reg.GPRC), d.rd(reg.GORCL), d.rd(reg.GORCH), d.rd(reg.GORCL), d.rd(reg.QPRC(0)))
}

func sceneEEPROM(r *rig) string {
	d := r.a
	var sum uint16
	for w := range uint32(0x40) {
		d.wr(reg.EERD, w<<2|reg.EERD_START)
		d.poll(reg.EERD, reg.EERD_DONE, reg.EERD_DONE)
		sum += uint16(d.rd(reg.EERD) >> 16)
	}
	return fmt.Sprintf("%04X", sum)
}

func sceneModule(r *rig) string {
	r.a.takeGSSR(reg.GSSR_PHY0_SM)
	b := &twoWire{mini: r.a}
	page, ok := b.read(reg.SFP_I2C_ADDR, 0, 8)
	return fmt.Sprintf("% x %v", page, ok)
}

func sceneLoopback(r *rig) string {
	d := r.a
	d.wr(reg.RXCTRL, 0)
	d.or(reg.HLREG0, reg.HLREG0_LPBK)
	d.or(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
	d.poll(reg.SECRXSTAT, reg.SECRXSTAT_SECRX_RDY, reg.SECRXSTAT_SECRX_RDY)
	d.or(reg.RXCTRL, reg.RXCTRL_RXEN)
	d.clear(reg.SECRXCTRL, reg.SECRXCTRL_RX_DIS)
	d.send(0, frameTo([6]byte{2, 0, 0, 0, 0, 0xA}, 60, 1), 0, true)
	r.run(100 * time.Microsecond)
	return d.take()
}

func scenePause(r *rig) string {
	r.a.or(reg.MFLCN, reg.MFLCN_RFCE|reg.MFLCN_DPF)
	f := padded([]byte{1, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 0xB, 0x88, 0x08, 0, 1, 0x7F, 0xFF})
	r.b.send(0, f, 0, true)
	r.run(50 * time.Microsecond)
	r.a.send(0, frameTo(macB, 60, 1), 0, true)
	r.run(100 * time.Microsecond)
	return r.b.take()
}

// play runs a scene on two cards that both have the faults.
func play(t *testing.T, scene string, f Faults) string {
	opt := miniOptions{vme: true, jumbo: true}
	if scene == "RSS" {
		opt.queues = 4
		opt.key = bytes.Repeat([]byte{0x6D, 0x5A, 0x56, 0xDA, 0x25}, 8)
	}
	r := newRig(t, 5, opt, nil)
	r.start()
	r.a.card.SetFaults(f)
	r.b.card.SetFaults(f)
	r.run(10 * time.Microsecond)
	return scenes[scene](r)
}

// TestEachNamedFaultShows runs each fault's scene with it and without.
func TestEachNamedFaultShows(t *testing.T) {
	good := map[string]string{}
	for name := range scenes {
		good[name] = play(t, name, Faults{})
	}
	for _, name := range FaultNames() {
		t.Run(name, func(t *testing.T) {
			f, err := FaultByName(name)
			if err != nil {
				t.Fatal(err)
			}
			scene, ok := sceneOf[name]
			if !ok {
				t.Fatal("no scene for it")
			}
			if got := play(t, scene, f); got == good[scene] {
				t.Errorf("%s: nothing to be seen of it:\n%s", scene, got)
			}
		})
	}
}

// TestMaskFaultsFlipOneBit looks at a register that keeps some bits, at one that keeps none, and at a tail.
func TestMaskFaultsFlipOneBit(t *testing.T) {
	for _, c := range []struct {
		name string
		off  uint32
		want uint32 // of a written FFFFFFFF
	}{
		{"", reg.RDLEN(1), 0x000FFF80},
		{"mask:RDLEN:7", reg.RDLEN(1), 0x000FFF00},
		{"mask:RDLEN:31", reg.RDLEN(1), 0x800FFF80},
		{"mask:MTA:0", reg.MTA(77), 0xFFFFFFFE},
		{"mask:STATUS:31", reg.STATUS, 0x80080000},
		{"mask:RDT:3", reg.RDT(1), 0x0000FFF7},
		{"mask:RDT:16", reg.RDT(1), 0x0001FFFF},
		{"rah-mask", reg.RAH(200 / 2), 0x8004FFFF},
		{"mask:GPRC:0", reg.GPRC, 1},
	} {
		f, err := FaultByName(c.name)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, 5, miniOptions{}, nil)
		r.start()
		r.a.card.SetFaults(f)
		r.a.wr(c.off, 0xFFFFFFFF)
		if got := r.a.rd(c.off); got != c.want {
			t.Errorf("%q: %s reads %08X, want %08X", c.name, reg.Name(c.off), got, c.want)
		}
	}
}

func TestFaultsThatDoNotExist(t *testing.T) {
	for _, name := range []string{"rah", "mask:", "mask:RAH", "mask:RAH:32", "mask:RAH:-1", "mask:NOSUCH:1", "mask:RAH:1:2"} {
		if f, err := FaultByName(name); err == nil {
			t.Errorf("%q is %+v", name, f)
		}
	}
}
