package dpdk

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sample(name string) exchange {
	return exchange{
		Traffic: name, Port: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Peer: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Count: 40, Seed: 7, VLAN: 5,
		MSS: 200, Good: []string{"02:00:00:00:00:55"}, Bad: []string{"02:00:00:00:00:54"},
	}
}

func TestBothHalvesMakeTheSameFrames(t *testing.T) {
	for name := range traffics {
		t.Run(name, func(t *testing.T) {
			one, err := sample(name).steps()
			require.NoError(t, err)
			other, err := sample(name).steps()
			require.NoError(t, err)
			assert.Equal(t, one, other)
			for _, s := range one {
				assert.LessOrEqual(t, len(s.send), window)
				for _, f := range append(s.send, s.want...) {
					assert.GreaterOrEqual(t, len(f), 60)
				}
			}
		})
	}
	_, err := sample("bogus").steps()
	assert.Error(t, err)
}

// rightSums says whether the checksums of a frame are right, as gopacket verifies them.
func rightSums(t *testing.T, f []byte) bool {
	t.Helper()
	p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
	if l, ok := p.TransportLayer().(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		require.NoError(t, l.SetNetworkLayerForChecksum(p.NetworkLayer()))
	}
	err, mismatches := p.VerifyChecksums()
	require.NoError(t, err)
	return len(mismatches) == 0
}

func TestDamagedChecksumsAreWrongAndTheOthersRight(t *testing.T) {
	x := sample("damaged-sums")
	kinds := make(map[int]int)
	for i, f := range x.sent() {
		kinds[damage(i)]++
		assert.Equal(t, damage(i) == damageNone, rightSums(t, f), "frame %d", i)
	}
	assert.Len(t, kinds, numDamages)

	steps, err := sample("checksums").steps()
	require.NoError(t, err)
	for _, s := range steps {
		for i := range s.send {
			assert.False(t, rightSums(t, s.send[i]))
			assert.True(t, rightSums(t, s.want[i]))
		}
	}
}

func TestSegmentsHaveThePayloadOfTheWhole(t *testing.T) {
	steps, err := sample("segments").steps()
	require.NoError(t, err)
	tcp := func(f []byte) *layers.TCP {
		l, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
		require.True(t, ok)
		return l
	}
	for _, s := range steps {
		whole, payload := tcp(s.send[0]), []byte(nil)
		for i, f := range s.want {
			assert.True(t, rightSums(t, f))
			part, last := tcp(f), i == len(s.want)-1
			assert.Equal(t, whole.Seq+uint32(len(payload)), part.Seq)
			assert.Equal(t, whole.PSH && last, part.PSH)
			assert.Equal(t, whole.FIN && last, part.FIN)
			payload = append(payload, part.Payload...)
		}
		assert.Equal(t, whole.Payload, payload)
		assert.Greater(t, len(s.want), 1)
	}
}

func TestFramesAreKnownByTheirSource(t *testing.T) {
	for i, f := range sample("flows").sent() {
		assert.Equal(t, i, numberOf(f[6:12]))
	}
	assert.Equal(t, -1, numberOf(sender))
	assert.Equal(t, 515, numberOf(numbered(515)))
}
