//go:build guest

package dpdk

import (
	"errors"
	"fmt"
	"os"
	"regexp"
)

// check is something that testpmd and the host find out together about a card. It leaves the ports as it found them.
type check struct {
	name    string
	stopped []string // commands while the ports are stopped, before
	undo    []string // … and after; with either, the ports are stopped and started again
	live    []string // commands while the ports are started, before
	quiet   []string // … and after
	inward  bool     // no frame passes the wire: a new start of the ports is what brings rest
	run     func(b *bench) error
}

// judge runs a check.
func (c check) judge(b *bench) (err error) {
	if c.stopped != nil || c.undo != nil {
		if err := b.reconfigure(c.stopped...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.reconfigure(c.undo...)) }()
	}
	defer func() {
		_, undone := b.do(c.quiet...)
		err = errors.Join(err, undone)
	}()
	if _, err := b.do(c.live...); err != nil {
		return err
	}
	return c.run(b)
}

// full says that everything is to be run.
var full = os.Getenv("BAREWIRE_FULL") == "1"

// times is how often something is repeated.
func times(few, many int) int {
	if full {
		return many
	}
	return few
}

var checks = []check{
	// The first, while the link has changed least: see checkLink.
	{name: "link", run: checkLink},
	{name: "io forwarding", run: passes("io", exchange{Traffic: "same", Count: 320, Seed: 1})},
	{name: "mac forwarding", run: passes("mac", exchange{Traffic: "forwarded", Count: 64, Seed: 2})},
	{name: "counts", run: checkCounts},
	{name: "icmpecho", run: checkICMP},
	{
		name:    "jumbo frames",
		stopped: []string{"port config mtu 0 9000", "port config 0 rx_offload scatter on", "port config 0 tx_offload multi_segs on"},
		undo:    []string{"port config mtu 0 1500", "port config 0 rx_offload scatter off", "port config 0 tx_offload multi_segs off"},
		run:     passes("io", exchange{Traffic: "jumbo", Count: 12, Seed: 3}),
	},
	rssCheck,
	{name: "rx checksums", stopped: rxSums("on"), undo: rxSums("off"), live: loud, quiet: silent, run: checkRxSums},
	{name: "rx checksum counts", stopped: append(rxSums("on"), hwSums...), undo: append(rxSums("off"), swSums...), run: checkBadSums},
	{
		name: "tx checksums", stopped: hwSums, undo: swSums,
		run: passes("csum", exchange{Traffic: "checksums", Count: 64, Seed: 5}),
	},
	{
		name:    "tso",
		stopped: append([]string{"tso set 200 0"}, hwSums...), undo: append([]string{"tso set 0 0"}, swSums...),
		run: passes("csum", exchange{Traffic: "segments", Count: 24, Seed: 6, MSS: 200}),
	},
	{
		name: "vlan strip", live: []string{"vlan set strip on 0"}, quiet: []string{"vlan set strip off 0"},
		run: passes("mac", exchange{Traffic: "tags-removed", Count: 48, Seed: 7, VLAN: 0x6123}),
	},
	{
		name: "vlan tag in the descriptor", live: append([]string{"vlan set strip on 0"}, loud...),
		quiet: append([]string{"vlan set strip off 0"}, silent...), run: checkTags,
	},
	{
		name: "vlan insert", stopped: []string{"tx_vlan set 0 291"}, undo: []string{"tx_vlan reset 0"},
		run: passes("mac", exchange{Traffic: "tags-added", Count: 48, Seed: 8, VLAN: 291}),
	},
	{
		name: "vlan filter", live: []string{"vlan set filter on 0", "rx_vlan add 291 0", "rx_vlan add 4094 0"},
		quiet: []string{"rx_vlan rm 291 0", "rx_vlan rm 4094 0", "vlan set filter off 0"},
		run: passes("io", exchange{
			Traffic: "vlans", Seed: 9, Good: []string{"291", "4094"}, Bad: []string{"1", "290", "292", "323", "4093", "4095"},
		}),
	},
	{
		name: "address filters",
		live: []string{
			"set promisc 0 off", "set allmulti 0 off", "mac_addr add 0 02:00:00:00:00:55", "mcast_addr add 0 01:00:5E:00:00:05",
			"mcast_addr add 0 33:33:00:00:00:FB",
		},
		quiet: []string{
			"mcast_addr remove 0 01:00:5E:00:00:05", "mcast_addr remove 0 33:33:00:00:00:FB", "mac_addr remove 0 02:00:00:00:00:55",
			"set promisc 0 on",
		},
		run: passes("io", exchange{
			Traffic: "addresses", Seed: 10,
			Good: []string{"02:00:00:00:00:55", "01:00:5e:00:00:05", "33:33:00:00:00:fb", "ff:ff:ff:ff:ff:ff"},
			Bad:  []string{"02:00:00:00:00:54", "03:00:00:00:00:55", "01:00:5e:00:00:06", "33:33:00:00:10:fb", "01:80:c2:00:00:0e"},
		}),
	},
	{
		name: "all multicast", live: []string{"set promisc 0 off", "set allmulti 0 on"}, quiet: []string{"set allmulti 0 off", "set promisc 0 on"},
		run: passes("io", exchange{
			Traffic: "addresses", Seed: 11, Good: []string{"01:00:5e:00:00:06", "33:33:00:00:01:fb"}, Bad: []string{"02:00:00:00:00:54"},
		}),
	},
	{name: "loopback", stopped: []string{"port config 0 loopback 1"}, undo: []string{"port config 0 loopback 0"}, inward: true, run: checkLoopback},
	{name: "restart", run: checkRestart},
	{name: "reset", run: checkReset},
}

// Commands of several checks.
var (
	loud   = []string{"set verbose 1", "set burst 8"} // testpmd cuts what it prints of a larger burst
	silent = []string{"set verbose 0", "set burst 16"}
	hwSums = []string{"csum set ip hw 0", "csum set udp hw 0", "csum set tcp hw 0"}
	swSums = []string{"csum set ip sw 0", "csum set udp sw 0", "csum set tcp sw 0"}
)

func rxSums(how string) (all []string) {
	for _, which := range []string{"ipv4_cksum", "udp_cksum", "tcp_cksum"} {
		all = append(all, fmt.Sprintf("port config 0 rx_offload %s %s", which, how))
	}
	return all
}

// passes is a check by what comes back alone.
func passes(engine string, x exchange) func(b *bench) error {
	return func(b *bench) error {
		_, err := b.forward(engine, func() error {
			_, err := b.exchange(x)
			return err
		})
		return err
	}
}

func checkICMP(b *bench) error {
	_, err := b.forward("icmpecho", func() error {
		_, err := b.ask(question{Ping: &ping{Host: hostAddress, Peer: peerAddress, Lengths: []int{0, 1, 56, 57, 500, 1400, 1472}}})
		return err
	})
	return err
}

// checkLoopback lets a burst of testpmd's own frames go round inside the card for a moment.
func checkLoopback(b *bench) error {
	if _, err := b.do("set fwd io", "start tx_first"); err != nil {
		return err
	}
	text, err := b.do("stop")
	if err != nil {
		return err
	}
	f, err := forwardOf(text)
	if err != nil {
		return err
	}
	if f.RxPackets == 0 {
		return errors.New("nothing of what was sent has come back inside the card")
	}
	return nil
}

var linkEvent = regexp.MustCompile(`Port 0: link state change event\n`)

// checkLink pulls the cable and puts it back. It has a second try, for a mistake of 22.11's driver, which no card can spare it: at
// each change it masks the link's interrupt (hence EIMS = 0, which changes nothing), remembers the mask once, and sets an alarm that
// puts it back. With two alarms under way, as after a restart of the port in that time, the second puts back the 0 that the first
// has left, and the driver hears no more of the link until its port is started anew.
func checkLink(b *bench) error {
	err := pullAndPlug(b)
	if err != nil {
		if err := b.reconfigure(); err != nil {
			return err
		}
		err = pullAndPlug(b)
	}
	if err != nil {
		return err
	}
	return passes("io", exchange{Traffic: "same", Count: 16, Seed: 12})(b)
}

func pullAndPlug(b *bench) (err error) {
	defer func() { err = errors.Join(err, b.control(nil, `{"do":"link","card":0,"up":true}`)) }()
	for _, up := range []bool{false, true} {
		if err := b.cable(up); err != nil {
			return err
		}
	}
	return nil
}

func checkRestart(b *bench) error {
	for i := range times(2, 10) {
		if err := b.reconfigure(); err != nil {
			return fmt.Errorf("time %d: %w", i, err)
		}
		if err := passes("io", exchange{Traffic: "same", Count: 32, Seed: uint64(20 + i)})(b); err != nil {
			return fmt.Errorf("time %d: %w", i, err)
		}
	}
	return nil
}

// checkReset has the driver go through its whole initialisation again.
func checkReset(b *bench) error {
	if err := b.reconfigure("port reset 0"); err != nil {
		return err
	}
	return passes("io", exchange{Traffic: "same", Count: 32, Seed: 30})(b)
}
