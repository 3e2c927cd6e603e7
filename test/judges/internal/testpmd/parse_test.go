package testpmd

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded is what testpmd 22.11 printed. The figures were made different, so that a mix-up shows.
func recorded(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".txt")
	require.NoError(t, err)
	return string(b)
}

func TestPortStatistics(t *testing.T) {
	s, err := ParsePortStats(recorded(t, "stats"))
	require.NoError(t, err)
	assert.Equal(t, PortStats{
		RxPackets: 130, RxMissed: 2, RxBytes: 83310, RxErrors: 1, RxNoMbuf: 3, TxPackets: 128, TxErrors: 4, TxBytes: 82790,
	}, s)
	_, err = ParsePortStats("Invalid port 7\n")
	assert.ErrorContains(t, err, "Invalid port 7")
}

func TestForwardStatisticsOfTwoPorts(t *testing.T) {
	f, err := ParseForward(recorded(t, "forward"))
	require.NoError(t, err)
	assert.Equal(t, map[int]Forward{
		0: {RxPackets: 154, RxDropped: 5, TxPackets: 153, TxDropped: 1, BadIPSum: 16, BadL4Sum: 17},
		1: {RxPackets: 8, TxPackets: 9},
	}, f)
	_, err = ParseForward("Packet forwarding not started\n")
	assert.ErrorContains(t, err, "not started")
}

func TestExtendedStatistics(t *testing.T) {
	x, err := ParseXStats(recorded(t, "xstats"))
	require.NoError(t, err)
	assert.Len(t, x, 18)
	assert.Equal(t, ^uint64(0), x["rx_good_bytes"])
	assert.Equal(t, uint64(12), x["tx_q1_packets"])
	_, err = ParseXStats(recorded(t, "xstats") + recorded(t, "xstats"))
	assert.ErrorContains(t, err, "twice")
	_, err = ParseXStats("")
	assert.Error(t, err)
}

func TestPortInformation(t *testing.T) {
	text := recorded(t, "info")
	i, err := ParseInfo(text)
	require.NoError(t, err)
	assert.Equal(t, "da:cd:54:30:fb:be", i.MAC.String())
	i.MAC = nil
	assert.Equal(t, Info{Driver: "net_null", Up: true, SpeedMbps: 10000, MTU: 1500, Promiscuous: true, AllMulti: true, RxQueues: 2, RETA: 128}, i)

	down := strings.NewReplacer("Link status: up", "Link status: down", "Link speed: 10 Gbps", "Link speed: None").Replace(text)
	i, err = ParseInfo(down)
	require.NoError(t, err)
	assert.False(t, i.Up)
	assert.Zero(t, i.SpeedMbps)
	_, err = ParseInfo("Invalid port 7\n")
	assert.Error(t, err)
}

func TestPacketsOfTwoBursts(t *testing.T) {
	p, err := ParsePackets(recorded(t, "packets"))
	require.NoError(t, err)
	require.Len(t, p, 3)

	assert.Equal(t, uint32(0x51ccc178), p[0].Hash)
	assert.Equal(t, 60, p[0].Length)
	assert.Equal(t, 1, p[0].Segments)
	assert.Equal(t, "L2_ETHER L3_IPV4 L4_UDP", p[0].HwType)
	assert.Equal(t, "02:82:59:9e:00:01", p[0].Dst.String())
	assert.True(t, p[0].Has("RX_RSS_HASH"))
	assert.True(t, p[0].Has("RX_L4_CKSUM_GOOD"))

	assert.Equal(t, uint16(0x6123), p[1].VLAN)
	assert.Equal(t, 2, p[1].Segments)
	assert.Empty(t, p[1].HwType)
	assert.True(t, p[1].Has("RX_VLAN_STRIPPED"))
	assert.False(t, p[1].Has("RX_RSS_HASH"))

	assert.True(t, p[2].Sent)
	assert.Equal(t, 3, p[2].Queue)
	assert.Equal(t, uint16(0x0806), p[2].Type)
}

func TestHalfAPacketIsAnError(t *testing.T) {
	text := recorded(t, "packets")
	_, err := ParsePackets(text[:strings.Index(text, "  ol_flags")])
	assert.ErrorContains(t, err, "inside a packet")
	_, err = ParsePackets(text[:strings.LastIndex(text, "  src")])
	assert.ErrorContains(t, err, "inside a packet")
	_, err = ParsePackets("port 0/queue 0: received 2 packets\nport 0/queue 1: received 1 packets\n")
	assert.ErrorContains(t, err, "missing")
}

func TestHashKeyAndRedirectionTable(t *testing.T) {
	key, err := ParseHashKey("RSS functions:\n  ipv4 ipv4-udp\nRSS key:\n6D5A56DA25\n")
	require.NoError(t, err)
	assert.Equal(t, []byte{0x6d, 0x5a, 0x56, 0xda, 0x25}, key)
	_, err = ParseHashKey("RSS disabled\n")
	assert.ErrorContains(t, err, "RSS disabled")

	table, err := ParseRETA("RSS RETA configuration: hash index=0, queue=3\nRSS RETA configuration: hash index=1, queue=0\n")
	require.NoError(t, err)
	assert.Equal(t, map[int]int{0: 3, 1: 0}, table)
	_, err = ParseRETA("")
	assert.Error(t, err)
}

// FuzzParse: whatever testpmd writes, the parsers return.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"stats", "forward", "xstats", "info", "packets"} {
		f.Add(recorded(f, name))
	}
	f.Add("port 0/queue 0: received 99999999999999999999 packets\n  src=1:2 - dst=3 - type=0x1 - length=1 - nb_segs=1\n ol_flags: x\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = ParsePortStats(text)
		_, _ = ParseForward(text)
		_, _ = ParseXStats(text)
		_, _ = ParseInfo(text)
		_, _ = ParsePackets(text)
		_, _ = ParseHashKey(text)
		_, _ = ParseRETA(text)
	})
}
