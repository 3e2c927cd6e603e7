//go:build guest

package vfio

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/wire"
)

// echoPort is where the responder sends datagrams back (RFC 862).
const echoPort = 7

// responder answers ARP requests for its address, echo requests, and datagrams to echoPort. Answers leave in the buffers that the
// requests came in; the card computes their checksums.
type responder struct {
	port nic.Port
	ip   [4]byte
	// What it has seen. Unchecked are datagrams of which the card did not say that their checksums are right.
	arps, echoes, datagrams, others, unchecked, sleeps atomic.Uint64
	out                                                []*mbuf.Buf
}

// run answers until the context ends or the port has gone.
func (r *responder) run(ctx context.Context, w *nic.Waiter, now func() int64) error {
	stop := context.AfterFunc(ctx, w.Wake)
	defer stop()
	idle := nic.NewIdle(w, 20, r.port.Rx(0), r.port.Tx(0))
	into := make([]*mbuf.Buf, 32)
	for ctx.Err() == nil {
		n := r.port.Rx(0).Recv(into)
		for _, b := range into[:n] {
			if r.answer(b) {
				r.out = append(r.out, b)
				continue
			}
			b.Free()
		}
		for len(r.out) > 0 && r.port.Err() == nil {
			r.out = r.out[r.port.Tx(0).Send(r.out):]
		}
		slept, err := idle.Round(n, now()+int64(time.Second))
		if err != nil {
			return err
		}
		if slept {
			r.sleeps.Add(1)
		}
	}
	return nil
}

// answer turns a request into its answer, in place, and says whether there is one.
func (r *responder) answer(b *mbuf.Buf) bool {
	eth, rest, err := wire.ParseEthernet(b.Bytes())
	if err != nil {
		r.others.Add(1)
		return false
	}
	var ok bool
	switch eth.Type() {
	case wire.EtherTypeARP:
		ok = r.arp(rest)
	case wire.EtherTypeIPv4:
		ok = r.ipv4(b, rest)
	}
	if !ok {
		r.others.Add(1)
		return false
	}
	eth.SetDst(eth.Src())
	eth.SetSrc(r.port.Info().MAC)
	return true
}

func (r *responder) arp(b []byte) bool {
	p, _, err := wire.ParseARP(b)
	if err != nil || p.Op() != wire.ARPRequest || p.TargetIP() != r.ip {
		return false
	}
	p.SetOp(wire.ARPReply)
	p.SetTargetMAC(p.SenderMAC())
	p.SetTargetIP(p.SenderIP())
	p.SetSenderMAC(r.port.Info().MAC)
	p.SetSenderIP(r.ip)
	r.arps.Add(1)
	return true
}

func (r *responder) ipv4(b *mbuf.Buf, packet []byte) bool {
	ip, payload, err := wire.ParseIPv4(packet)
	if err != nil || ip.Dst() != r.ip || ip.IsFragment() {
		return false
	}
	// A frame may be padded; what the card sums ends with the datagram.
	if b.SetLen(wire.EthernetLen+ip.TotalLen()) != nil {
		return false
	}
	flags := b.Flags()
	switch ip.Proto() {
	case wire.ProtoICMP:
		m, data, err := wire.ParseICMP(payload)
		if err != nil || m.Type() != wire.ICMPEcho {
			return false
		}
		m.SetType(wire.ICMPEchoReply)
		m.FillChecksum(wire.SumOf(data))
		b.SetTxFlags(mbuf.TxIPSum)
		r.echoes.Add(1)
	case wire.ProtoUDP:
		u, _, err := wire.ParseUDP(payload)
		if err != nil || u.DstPort() != echoPort {
			return false
		}
		if flags&mbuf.RxIPGood == 0 || flags&mbuf.RxL4Good == 0 {
			r.unchecked.Add(1)
		}
		u.SetDstPort(u.SrcPort())
		u.SetSrcPort(echoPort)
		b.SetTxFlags(mbuf.TxIPSum | mbuf.TxL4Sum | mbuf.TxUDP)
		r.datagrams.Add(1)
		defer func() { u.SetChecksum(uint16(ip.PseudoSum(len(payload)))) }()
	default:
		return false
	}
	ip.SetDst(ip.Src())
	ip.SetSrc(r.ip)
	ip.SetTTL(64)
	b.L2Len, b.L3Len = wire.EthernetLen, wire.IPv4MinLen
	return true
}

func (r *responder) String() string {
	return fmt.Sprintf("%d ARP requests, %d echo requests, %d datagrams (%d of unknown checksum), %d others; %d sleeps",
		r.arps.Load(), r.echoes.Load(), r.datagrams.Load(), r.unchecked.Load(), r.others.Load(), r.sleeps.Load())
}
