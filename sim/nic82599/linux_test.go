package nic82599

import (
	"bytes"
	"testing"
	"time"

	"bare.wire/ixgbe/reg"
)

// What Linux's driver does, and what is no misuse for that reason.

func TestAllVectorsMayBeEnabledAtOnce(t *testing.T) {
	r := newRig(t, 4, miniOptions{}, nil)
	r.start()
	d := r.a
	d.wr(reg.EIMS_EX(1), 0xFFFFFFFF)
	d.wr(reg.IVAR(0), 0x8180)
	d.wr(reg.EIMS, 0x7) // the third leads nowhere
	r.clean()
	d.wr(reg.EIMS_EX(0), 1<<5)
	if !d.has(InterruptUnmapped) {
		t.Error("a vector that no IVAR entry leads to was enabled alone, unnoticed")
	}
}

func TestReceiveDescriptorMayKeepItsStatusIfItsLengthIsCleared(t *testing.T) {
	r := newRig(t, 4, miniOptions{}, nil)
	r.start()
	d := r.b
	for i := range 200 {
		r.a.send(0, frameTo(macB, 60, byte(i)), 0, true)
		for range 1000 {
			q := d.rx[0]
			w1 := load(q.ring[16*q.next+8:])
			if w1&reg.RXD_LEN != 0 {
				store(q.ring[16*q.next:], q.bus[q.next])
				store(q.ring[16*q.next+8:], w1&^reg.RXD_LEN)
				d.wr(reg.RDT(0), uint32(q.next))
				q.next = (q.next + 1) % d.opt.desc
				break
			}
			r.run(time.Microsecond)
		}
	}
	if n := d.rd(reg.QPRC(0)); n != 200 {
		t.Errorf("%d frames of 200", n)
	}
	r.clean()
}

// TestContextNeedsNoIPV4ForTheL4Checksum has IPLEN alone say where the checksum is.
func TestContextNeedsNoIPV4ForTheL4Checksum(t *testing.T) {
	r := newRig(t, 4, miniOptions{}, nil)
	r.start()
	want := ipFrame(tcpPair[0], tcpPair[1], protoUDP, 100)
	f := bytes.Clone(want)
	sum := [2]byte{f[24], f[25]}
	pseudo(f, true)
	f[24], f[25] = sum[0], sum[1] // the header's, which the driver makes itself
	r.a.putContext(14, 20, 0, 0, l4UDP, false)
	r.a.putFrame(f, len(f), reg.TXD_TXSM)
	r.b.expect(0, want)
	r.clean()
}

func TestBufferOf16KiBIsOneDescriptor(t *testing.T) {
	r := newRig(t, 4, miniOptions{jumbo: true}, nil)
	r.start()
	d := r.a
	f := ipFrame(tcpPair[0], tcpPair[1], protoTCP, maxDataLen-54)
	pseudo(f, false)
	d.putContext(14, 20, 20, 1448, l4TCP, true)
	d.putFrame(f, len(f)-54, reg.TXD_TSE|reg.TXD_IXSM|reg.TXD_TXSM)
	r.run(100 * time.Microsecond)
	if n := d.card.Counts().TxSegments; n != 12 {
		t.Errorf("%d segments, want 12", n)
	}
	r.clean()
	d.putTx(d.tx[0].bus[0], txWords(maxDataLen+1, maxDataLen+1, true, true))
	d.ring()
	r.run(100 * time.Microsecond)
	if !d.has(TxLengthZero) {
		t.Error("a descriptor of more than 16 KiB was taken")
	}
}
