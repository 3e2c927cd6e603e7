//go:build guest

package dpdk

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"bare.wire/test/judges/internal/testpmd"
)

// forwardOf are the forwarding figures of port 0.
func forwardOf(text string) (testpmd.Forward, error) {
	all, err := testpmd.ParseForward(text)
	if err != nil {
		return testpmd.Forward{}, err
	}
	return all[0], nil
}

// output waits until testpmd has printed n packets since a mark, and returns the output up to there.
func (b *bench) output(mark, n int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.patience)
	defer cancel()
	return b.Wait(ctx, mark, fmt.Sprintf("%d packets", n), func(text string) int {
		end := strings.LastIndexByte(text, '\n') + 1
		if strings.Count(text[:end], "  ol_flags: ") < n {
			return -1
		}
		return end
	})
}

// cable pulls the card's cable or puts it back, and waits until testpmd has seen it.
func (b *bench) cable(up bool) error {
	mark := b.Mark()
	if err := b.control(nil, `{"do":"link","card":0,"up":%v}`, up); err != nil {
		return err
	}
	// The driver looks at a link that went down once more after 4 s, and at one that came up after 1 s, before it says so.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second+b.patience)
	defer cancel()
	for {
		text, err := b.Until(ctx, mark, linkEvent)
		if err != nil {
			return err
		}
		mark += len(text)
		if i, err := b.portInfo(0); err != nil || i.Up == up {
			return err
		}
	}
}

// cardCounts are the card's own counts that testpmd's are compared with (nic82599.Counts).
type cardCounts struct {
	TxFrames, TxBytes, RxFrames, RxBytes uint64
}

func (b *bench) cardCounts(card int) (cardCounts, error) {
	var a struct{ Counts cardCounts }
	err := b.control(&a, `{"do":"counts","card":%d}`, card)
	return a.Counts, err
}

const fcsLen = 4

// sizes are the classes of the card's size counters, by the last length with FCS of each.
var sizes = []struct {
	name string
	last int
}{{"64", 64}, {"65_to_127", 127}, {"128_to_255", 255}, {"256_to_511", 511}, {"512_to_1023", 1023}, {"1024_to_max", 1522}}

// checkCounts has three sides count the same frames: the host, the card and testpmd. It asks testpmd twice, since the driver adds
// up registers that reading clears.
func checkCounts(b *bench) error {
	x := exchange{Traffic: "same", Count: 96, Seed: 50, Port: b.info.MAC, Peer: peer}
	before, err := b.cardCounts(0)
	if err != nil {
		return err
	}
	if _, err := b.do("clear port stats 0", "clear port xstats 0"); err != nil {
		return err
	}
	text, err := b.forward("io", func() error {
		_, err := b.exchange(x)
		return err
	})
	if err != nil {
		return err
	}
	var faults []error
	same := func(what string, got, want uint64) {
		if got != want {
			faults = append(faults, fmt.Errorf("%s: %d, want %d", what, got, want))
		}
	}
	frames := x.sent()
	n, octets := uint64(len(frames)), uint64(0)
	for _, f := range frames {
		octets += uint64(len(f))
	}

	f, err := forwardOf(text)
	if err != nil {
		return err
	}
	same("testpmd's forwarded", f.TxPackets, n)
	same("testpmd's received for forwarding", f.RxPackets, n)

	after, err := b.cardCounts(0)
	if err != nil {
		return err
	}
	same("the card's received frames", after.RxFrames-before.RxFrames, n)
	same("the card's sent frames", after.TxFrames-before.TxFrames, n)
	same("the card's received bytes", after.RxBytes-before.RxBytes, octets+n*fcsLen)
	same("the card's sent bytes", after.TxBytes-before.TxBytes, octets+n*fcsLen)

	for i := range 2 {
		s, err := b.stats(0)
		if err != nil {
			return err
		}
		same(fmt.Sprintf("port statistics %d: received", i), s.RxPackets, n)
		same(fmt.Sprintf("port statistics %d: sent", i), s.TxPackets, n)
		same(fmt.Sprintf("port statistics %d: received bytes", i), s.RxBytes, octets)
		same(fmt.Sprintf("port statistics %d: sent bytes", i), s.TxBytes, octets)
		same(fmt.Sprintf("port statistics %d: errors", i), s.RxErrors+s.TxErrors+s.RxMissed+s.RxNoMbuf, 0)
	}
	return errors.Join(append(faults, b.extended(frames, octets))...)
}

// extended compares the extended statistics.
func (b *bench) extended(frames [][]byte, octets uint64) error {
	text, err := b.do("show port xstats 0")
	if err != nil {
		return err
	}
	got, err := testpmd.ParseXStats(text)
	if err != nil {
		return err
	}
	n := uint64(len(frames))
	want := map[string]uint64{
		"rx_good_packets": n, "tx_good_packets": n, "rx_q0_packets": n, "tx_q0_packets": n, "rx_total_packets": n,
		"rx_crc_errors": 0, "rx_missed_errors": 0, "rx_broadcast_packets": 0, "rx_multicast_packets": 0, "rx_length_errors": 0,
		"rx_good_bytes": octets, "tx_good_bytes": octets, "rx_total_bytes": octets,
	}
	for _, f := range frames {
		for _, s := range sizes {
			if len(f)+fcsLen <= s.last {
				want["rx_size_"+s.name+"_packets"]++
				want["tx_size_"+s.name+"_packets"]++
				break
			}
		}
	}
	var faults []error
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			faults = append(faults, fmt.Errorf("xstats %s: %d, want %d", name, g, w))
		}
	}
	if len(faults) > 0 {
		faults = append(faults, errors.New(strings.Join(regexp.MustCompile(`(?m)^.*: [1-9].*$`).FindAllString(text, -1), "; ")))
	}
	return errors.Join(faults...)
}
