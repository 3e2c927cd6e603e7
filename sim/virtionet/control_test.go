package virtionet

import (
	"bytes"
	"testing"
	"time"

	"bare.wire/virtio/spec"
)

// controlFeatures are what the control queue needs for all its commands, with a device of several pairs.
const controlFeatures = spec.FeatureCtrlVQ | spec.FeatureCtrlRx | spec.FeatureCtrlRxExtra | spec.FeatureCtrlVLAN |
	spec.FeatureCtrlMACAddr | spec.FeatureGuestAnnounce | spec.FeatureMAC | spec.FeatureStatus

// control sends a command and returns the answer; −1: there is none.
func (r *rig) control(m *mini, class, cmd uint8, data ...byte) int {
	m.t.Helper()
	q := m.d.controlQueue()
	bus, b := m.mem.alloc(2+len(data)+1, 16)
	b[0], b[1] = class, cmd
	copy(b[2:], data)
	b[len(b)-1] = 0x55
	list := []piece{{bus, 2, false}, {bus + uint64(len(b)-1), 1, true}}
	if len(data) > 0 {
		list = []piece{{bus, 2, false}, {bus + 2, len(data), false}, {bus + uint64(len(b)-1), 1, true}}
	}
	id := m.put(q, list...)
	m.kick(q)
	r.run(4 * time.Microsecond)
	got, n, ok := m.ring[q].take()
	if !ok {
		return -1
	}
	if got != id || n != 1 {
		m.t.Errorf("command %d/%d: chain %d with %d bytes written, want %d and 1", class, cmd, got, n, id)
	}
	return int(b[len(b)-1])
}

// arrive puts a frame onto the wire for a, from the other end's card.
func (r *rig) arrive(f []byte) {
	r.w.Lock()
	r.wire.B().SetUp(true)
	r.wire.B().Transmit(f, r.clk.Nanos())
	r.w.Unlock()
	r.run(4 * time.Microsecond)
}

func tagged(dst [6]byte, vid uint16) []byte {
	f := frameTo(dst, 64, 1)
	f[12], f[13], f[14], f[15] = 0x81, 0, byte(vid>>8), byte(vid)
	return f
}

func TestFilterLetsInWhatItIsTold(t *testing.T) {
	broadcast := [6]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
	group, other := [6]byte{1, 0, 0x5E, 1, 2, 3}, [6]byte{2, 9, 9, 9, 9, 9}
	frames := [][]byte{frameTo(macA, 64, 0), frameTo(other, 64, 0), frameTo(group, 64, 0), frameTo(broadcast, 64, 0), tagged(macA, 5)}
	table := func(uni, multi [][6]byte) (b []byte) {
		for _, l := range [][][6]byte{uni, multi} {
			b = le.AppendUint32(b, uint32(len(l)))
			for _, a := range l {
				b = append(b, a[:]...)
			}
		}
		return b
	}
	many := make([][6]byte, maxTable+1)
	steps := []struct {
		what       string
		class, cmd uint8
		data       []byte
		want       string // own, other, group, broadcast, tagged
	}{
		{"promiscuous", 0, 0, []byte{1}, "YYYYY"},
		{"not", 0, 0, []byte{0}, "Y--Y-"},
		{"all multicast", 0, 1, []byte{1}, "Y-YY-"},
		{"all unicast", 0, 2, []byte{1}, "YYYY-"},
		{"no multicast", 0, 3, []byte{1}, "YY-Y-"},
		{"no broadcast", 0, 5, []byte{1}, "YY---"},
		{"no unicast", 0, 4, []byte{1}, "-----"},
		{"unicast", 0, 4, []byte{0}, "YY---"},
		{"not all unicast", 0, 2, []byte{0}, "Y----"},
		{"broadcast", 0, 5, []byte{0}, "Y--Y-"},
		{"multicast", 0, 3, []byte{0}, "Y-YY-"},
		{"not all multicast", 0, 1, []byte{0}, "Y--Y-"},
		{"a table", 1, 0, table([][6]byte{other}, [][6]byte{group}), "YYYY-"},
		{"an empty table", 1, 0, table(nil, nil), "Y--Y-"},
		{"a table that overflows", 1, 0, table(many, many), "YYYY-"},
		{"an empty table again", 1, 0, table(nil, nil), "Y--Y-"},
		{"VLAN 5", 2, 0, []byte{5, 0}, "Y--YY"},
		{"without VLAN 5", 2, 1, []byte{5, 0}, "Y--Y-"},
		{"another address", 1, 1, other[:], "-Y-Y-"},
	}
	for _, f := range []spec.Features{0, spec.FeatureRingPacked} {
		r := newRig(t, 5, nil)
		r.a.start(controlFeatures|f, 16)
		r.a.fill(0, 16, 1600)
		for _, s := range steps {
			if got := r.control(r.a, s.class, s.cmd, s.data...); got != spec.CtrlOK {
				t.Fatalf("%s: answer %d", s.what, got)
			}
			got := ""
			for _, f := range frames {
				r.arrive(f)
				mark := "-"
				if _, raw, ok := r.a.recv(0); ok {
					mark = "Y"
					if !bytes.Equal(raw[12:], f) {
						t.Errorf("%s: another frame", s.what)
					}
					r.a.fill(0, 1, 1600)
				}
				got += mark
			}
			if got != s.want {
				t.Errorf("%s: %s, want %s", s.what, got, s.want)
			}
		}
		r.a.clean()
	}
}

func TestCommandsThatMakeNoSenseAreRefused(t *testing.T) {
	r := newRig(t, 5, func(c *Config) { c.Pairs = 2 })
	r.a.start(controlFeatures|spec.FeatureMQ|spec.FeatureCtrlGuestOffloads|spec.FeatureGuestCSum|spec.FeatureRSS, 16)
	key := make([]byte, 40)
	rss := func(mask, entry, pairs uint16, keyLen int) (b []byte) {
		b = le.AppendUint32(b, spec.HashIPv4)
		b = le.AppendUint16(b, mask)
		b = le.AppendUint16(b, 0)
		for range int(mask) + 1 {
			b = le.AppendUint16(b, entry)
		}
		b = le.AppendUint16(b, pairs)
		return append(append(b, byte(keyLen)), key[:keyLen]...)
	}
	for _, x := range []struct {
		what       string
		class, cmd uint8
		data       []byte
	}{
		{"a class that there is not", 9, 0, []byte{1}},
		{"a mode that there is not", 0, 6, []byte{1}},
		{"a mode of 2", 0, 0, []byte{2}},
		{"a mode without a value", 0, 0, nil},
		{"an address of 5 bytes", 1, 1, make([]byte, 5)},
		{"a table that ends early", 1, 0, []byte{1, 0, 0, 0, 2, 2, 2, 2, 2, 2}},
		{"a table of far too many", 1, 0, []byte{0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}},
		{"bytes behind a table", 1, 0, make([]byte, 9)},
		{"VLAN 4096", 2, 0, []byte{0, 0x10}},
		{"no pairs", 4, 0, []byte{0, 0}},
		{"more pairs than there are", 4, 0, []byte{3, 0}},
		{"offloads that are not agreed on", 5, 0, []byte{0x80, 0, 0, 0, 0, 0, 0, 0}},
		{"hashes that are not agreed on", 4, 2, make([]byte, 20)},
		{"a mask of 5", 4, 1, rss(5, 0, 1, 40)},
		{"a table of 256", 4, 1, rss(255, 0, 1, 40)},
		{"a queue that there is not", 4, 1, rss(3, 2, 1, 40)},
		{"no transmit queues", 4, 1, rss(3, 0, 0, 40)},
		{"a short key", 4, 1, rss(3, 0, 1, 16)},
	} {
		r.a.d.ForgetMisuse()
		if got := r.control(r.a, x.class, x.cmd, x.data...); got != spec.CtrlErr {
			t.Errorf("%s: answer %d", x.what, got)
		}
		if list := r.a.d.Misuse(); len(list) != 1 || list[0].Kind != ControlValue {
			t.Errorf("%s: %v", x.what, list)
		}
	}
	r.a.d.ForgetMisuse()
	if got := r.control(r.a, 4, 1, rss(127, 1, 2, 40)...); got != spec.CtrlOK {
		t.Errorf("a good table: answer %d", got)
	}
	r.a.clean()
}

// udp4 is a UDP packet over IPv4, with right checksums.
func udp4(src, dst [4]byte, sport, dport uint16, n int) []byte {
	f := frameTo(macA, 42+n, 3)
	copy(f[12:], []byte{8, 0, 0x45, 0, byte((28 + n) >> 8), byte(28 + n), 0, 1, 0, 0, 64, 17, 0, 0})
	copy(f[26:], src[:])
	copy(f[30:], dst[:])
	complete(f[14:34], 10, 0)
	copy(f[34:], []byte{byte(sport >> 8), byte(sport), byte(dport >> 8), byte(dport), byte((8 + n) >> 8), byte(8 + n), 0, 0})
	complete(f[34:], 6, uint64(17+8+n)+pseudo(f[26:34]))
	return f
}

// TestRSSFollowsTheTable has the verification suite of Microsoft's RSS specification: key, addresses and hashes.
func TestRSSFollowsTheTable(t *testing.T) {
	key := []byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
	r := newRig(t, 5, func(c *Config) { c.Pairs = 4 })
	r.a.start(controlFeatures|spec.FeatureMQ|spec.FeatureRSS|spec.FeatureHashReport, 16)
	for i := range 4 {
		r.a.fill(2*i, 8, 1600)
	}
	var b []byte
	b = le.AppendUint32(b, spec.HashUDPv4|spec.HashIPv4)
	b = le.AppendUint16(b, 127)
	b = le.AppendUint16(b, 3)
	for i := range 128 {
		b = le.AppendUint16(b, uint16(i%3))
	}
	b = le.AppendUint16(b, 4)
	b = append(append(b, 40), key...)
	if got := r.control(r.a, spec.CtrlMQ, spec.CtrlMQRSSConfig, b...); got != spec.CtrlOK {
		t.Fatalf("answer %d", got)
	}
	for _, x := range []struct {
		f      []byte
		hash   uint32
		report uint16
		pair   int
	}{
		{udp4([4]byte{66, 9, 149, 187}, [4]byte{161, 142, 100, 80}, 2794, 1766, 30), 0x51ccc178, spec.ReportUDPv4, 0x78 % 3},
		{udp4([4]byte{199, 92, 111, 2}, [4]byte{65, 69, 140, 83}, 14230, 4739, 30), 0xc626b0ea, spec.ReportUDPv4, (0xea & 127) % 3},
		{frameTo(macA, 64, 1), 0, spec.ReportNone, 3},
	} {
		r.arrive(x.f)
		_, raw, ok := r.a.recv(2 * x.pair)
		if !ok {
			t.Errorf("hash %#x: nothing in queue %d", x.hash, 2*x.pair)
			continue
		}
		if h, k := le.Uint32(raw[spec.HdrHashValue:]), le.Uint16(raw[spec.HdrHashReport:]); h != x.hash || k != x.report {
			t.Errorf("hash %#x of kind %d, want %#x of kind %d", h, k, x.hash, x.report)
		}
		if !bytes.Equal(raw[spec.HdrSizeHash:], x.f) {
			t.Error("another frame")
		}
	}
	r.a.clean()
}

func TestFlowsComeBackOnTheQueueThatSendsThem(t *testing.T) {
	r := newRig(t, 5, func(c *Config) { c.Pairs = 4 })
	r.a.start(controlFeatures|spec.FeatureMQ, 32)
	for i := range 4 {
		r.a.fill(2*i, 32, 1600)
	}
	if got := r.control(r.a, spec.CtrlMQ, spec.CtrlMQPairsSet, 4, 0); got != spec.CtrlOK {
		t.Fatalf("answer %d", got)
	}
	here, there := [4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}
	for i := range 16 {
		pair, port := i*7%4, uint16(1000+i*13)
		r.a.send(2*pair+1, Header{}, udp4(here, there, port, 53, 30), 1)
		r.run(4 * time.Microsecond)
		r.arrive(udp4(there, here, 53, port, 30))
		if _, _, ok := r.a.recv(2 * pair); !ok {
			t.Errorf("flow %d did not come back on pair %d", i, pair)
		}
	}
	r.a.clean()
}

func TestAnnounceIsAskedForUntilItIsAcknowledged(t *testing.T) {
	r := newRig(t, 5, nil)
	r.a.start(controlFeatures, 16)
	status := func() uint16 {
		var b [2]byte
		r.a.w.Lock()
		defer r.a.w.Unlock()
		r.a.d.ReadConfig(spec.NetStatus, b[:])
		return le.Uint16(b[:])
	}
	before := r.a.conf
	r.a.d.Announce()
	if status()&spec.NetStatusAnnounce == 0 || r.a.conf != before+1 {
		t.Errorf("status %#x, %d changes", status(), r.a.conf-before)
	}
	if got := r.control(r.a, spec.CtrlAnnounce, spec.CtrlAnnounceAck); got != spec.CtrlOK {
		t.Errorf("answer %d", got)
	}
	if status()&spec.NetStatusAnnounce != 0 || r.a.d.Counts().Announced != 1 {
		t.Errorf("status %#x once it was acknowledged", status())
	}
}

func TestControlQueueIsBehindAllPairs(t *testing.T) {
	for _, x := range []struct {
		f    spec.Features
		want int
	}{{0, 2}, {spec.FeatureMQ, 8}, {spec.FeatureRSS, 8}} {
		r := newRig(t, 5, func(c *Config) { c.Pairs = 4 })
		r.a.start(controlFeatures|x.f, 16)
		if got := r.a.d.controlQueue(); got != x.want {
			t.Errorf("%v: queue %d, want %d", x.f, got, x.want)
		}
		if got := r.control(r.a, 0, 0, 1); got != spec.CtrlOK {
			t.Errorf("%v: answer %d", x.f, got)
		}
	}
}
