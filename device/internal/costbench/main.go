// Costbench is what `make cost` counts the instructions of: the drivers, through the queues that device.Open returns, on the
// null: card, with statistics, reference counts, cache and bounds checks as in use. Rings have 512 descriptors, the pool 4095
// buffers, frames 60 bytes; forwarding increments byte 48 of each. The card's own work and the loop are in the figures.
//
// Cases whose names begin with split or packed are of the virtio driver, with everything that the null device offers; those of
// "-any" are of a device that does not promise to use buffers in order, the others of the 82599 driver.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// devices are what the first word of a case's name opens; without one it is the 82599.
var devices = map[string]string{
	"split":      "null:?driver=virtio&ring=split",
	"packed":     "null:?driver=virtio&ring=packed",
	"split-any":  "null:?driver=virtio&ring=split&features=-in_order",
	"packed-any": "null:?driver=virtio&ring=packed&features=-in_order",
}

const (
	frameLen = 60
	touched  = 48
)

var (
	bursts = []int{1, 7, 32, 33, 256}
	loops  = map[string]func(*bench, int) int{
		"recv": (*bench).recv, "send": (*bench).send, "forward": (*bench).forward, "forward2seg": (*bench).forwardTwo,
		"recvsum": (*bench).recv, "sendsum": (*bench).sendSum, "sendsumctx": (*bench).sendSums,
	}
	order = []string{"recv", "send", "forward", "forward2seg", "recvsum", "sendsum", "sendsumctx"}
	// offloads are those of the cases that have any.
	offloads = map[string]nic.Offload{
		"recvsum": nic.RxIPChecksum | nic.RxL4Checksum,
		"sendsum": nic.TxIPChecksum | nic.TxL4Checksum, "sendsumctx": nic.TxIPChecksum | nic.TxL4Checksum,
	}
)

func main() {
	list := flag.Bool("list", false, "list the cases")
	name := flag.String("case", "", "the case")
	n := flag.Int("n", 1, "packets")
	flag.Parse()
	if *list {
		for _, kind := range order {
			for _, burst := range bursts {
				fmt.Printf("%s/%d 200000\n", kind, burst)
			}
		}
		listVirtio()
		return
	}
	if err := run(*name, *n); err != nil {
		fmt.Fprintln(os.Stderr, "costbench:", err)
		os.Exit(1)
	}
}

// listVirtio prints the cases of the virtio driver: fewer, for they take time.
func listVirtio() {
	for _, ring := range []string{"split", "packed"} {
		for _, kind := range []string{"recv", "send", "forward"} {
			for _, burst := range []int{1, 32} {
				fmt.Printf("%s/%s/%d 100000\n", ring, kind, burst)
			}
		}
		for _, kind := range []string{"recvsum", "sendsum", "forward2seg"} {
			fmt.Printf("%s/%s/32 100000\n", ring, kind)
		}
		fmt.Printf("%s-any/recv/32 100000\n%s-any/send/32 100000\n", ring, ring)
	}
}

// bench is an open null: card with one queue pair.
type bench struct {
	rx    nic.RxQueue
	tx    nic.TxQueue
	cache *mbuf.Cache
	bufs  []*mbuf.Buf
	sums  mbuf.TxFlags // that the card can put in
}

func run(name string, n int) error {
	uri := "null:"
	first, rest, _ := strings.Cut(name, "/")
	if u, ok := devices[first]; ok {
		uri, name = u, rest
	}
	kind, size, _ := strings.Cut(name, "/")
	loop := loops[kind]
	var burst int
	if _, err := fmt.Sscan(size, &burst); err != nil || loop == nil {
		return fmt.Errorf("no case %q; -list lists them", name)
	}
	s, err := device.OpenSet(context.Background(), device.Options{}, uri)
	if err != nil {
		return err
	}
	pool, err := mbuf.NewPool(mbuf.Config{Name: "bench", Space: s.Space, Buffers: 4095})
	if err != nil {
		return err
	}
	port := s.Ports[0]
	if err := port.Start(context.Background(), nic.Config{Pool: pool, Offloads: offloads[kind] & port.Info().Offloads}); err != nil {
		return err
	}
	sums := mbuf.TxL4Sum | mbuf.TxUDP
	if port.Info().Offloads&nic.TxIPChecksum != 0 {
		sums |= mbuf.TxIPSum
	}
	b := &bench{sums: sums, rx: port.Rx(0), tx: port.Tx(0), cache: pool.NewCache(), bufs: make([]*mbuf.Buf, burst)}
	for done := 0; done < n; {
		k := loop(b, min(burst, n-done))
		if k == 0 {
			return fmt.Errorf("%s stands still after %d of %d packets", name, done, n)
		}
		done += k
	}
	b.cache.Close()
	if err := s.Close(); err != nil {
		return err
	}
	return pool.Close()
}

// recv receives a burst and frees it.
func (b *bench) recv(k int) int {
	got := b.rx.Recv(b.bufs[:k])
	b.cache.FreeBulk(b.bufs[:got])
	return got
}

// send allocates a burst and sends it.
func (b *bench) send(k int) int {
	got := b.cache.AllocBulk(b.bufs[:k])
	for _, m := range b.bufs[:got] {
		if m.SetLen(frameLen) != nil {
			return 0
		}
	}
	sent := b.tx.Send(b.bufs[:got])
	b.cache.FreeBulk(b.bufs[sent:got])
	return sent
}

// sendSum is send with the headers of UDP over IPv4, all alike, for the card to put the checksums in: it keeps one context.
func (b *bench) sendSum(k int) int { return b.sendUDP(k, 0) }

// sendSums is sendSum with headers that differ from one frame to the next in such a way that each needs a context.
func (b *bench) sendSums(k int) int { return b.sendUDP(k, 3) }

func (b *bench) sendUDP(k, kinds int) int {
	got := b.cache.AllocBulk(b.bufs[:k])
	for i, m := range b.bufs[:got] {
		if m.SetLen(frameLen) != nil {
			return 0
		}
		m.L2Len, m.L3Len = 14, 20
		if kinds > 0 { // there are two contexts
			m.L3Len += uint16(i%kinds) * 4
		}
		m.Bytes()[14] = 0x40 | byte(m.L3Len/4)
		m.SetTxFlags(b.sums)
	}
	sent := b.tx.Send(b.bufs[:got])
	b.cache.FreeBulk(b.bufs[sent:got])
	return sent
}

// forward receives a burst, touches each frame, and sends it.
func (b *bench) forward(k int) int { return b.pass(b.rx.Recv(b.bufs[:k])) }

// forwardTwo is forward with frames of two buffers.
func (b *bench) forwardTwo(k int) int {
	return b.pass(b.rx.(interface {
		RecvSegments([]*mbuf.Buf, int) int
	}).RecvSegments(b.bufs[:k], 2))
}

func (b *bench) pass(got int) int {
	for _, m := range b.bufs[:got] {
		m.Bytes()[touched]++
	}
	sent := b.tx.Send(b.bufs[:got])
	b.cache.FreeBulk(b.bufs[sent:got])
	return sent
}
