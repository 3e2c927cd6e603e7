package frames

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestToeplitzAgainstMicrosoftsVectors: "Verifying the RSS Hash Calculation".
func TestToeplitzAgainstMicrosoftsVectors(t *testing.T) {
	key, err := hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
	require.NoError(t, err)
	for _, v := range []struct {
		src, dst       string
		tuple, address uint32
	}{
		{"66.9.149.187:2794", "161.142.100.80:1766", 0x51ccc178, 0x323e8fc2},
		{"199.92.111.2:14230", "65.69.140.83:4739", 0xc626b0ea, 0xd718262a},
		{"[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x40207d3d, 0x2cc18cd5},
	} {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		input := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
		assert.Equal(t, v.address, Toeplitz(key, input))
		input = append(input, byte(src.Port()>>8), byte(src.Port()), byte(dst.Port()>>8), byte(dst.Port()))
		assert.Equal(t, v.tuple, Toeplitz(key, input))
	}
}

// TestSumOfRFC1071sExample: §3 of it.
func TestSumOfRFC1071sExample(t *testing.T) {
	b := []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}
	assert.Equal(t, uint16(0xddf2), Sum16(b, 0))
	assert.Equal(t, uint16(0xddf2), Sum16(b[2:], 1))
	assert.Equal(t, uint16(0xffff), Sum16(bytes.Repeat([]byte{0xff}, 1<<16), 0xffffffff), "carries of carries")
}

func TestWhatIsWrongWithAPatternIsSeen(t *testing.T) {
	f := make([]byte, 100)
	PutPattern(f, [6]byte{2}, [6]byte{4}, 77, Echo)
	require.Empty(t, WrongPattern(f))
	for i := PatternNumber; i < len(f); i++ {
		b := bytes.Clone(f)
		b[i] ^= 0x10
		assert.NotEmpty(t, WrongPattern(b), "byte %d", i)
	}
	assert.NotEmpty(t, WrongPattern(f[:18]))
	assert.NotEmpty(t, WrongPattern(append(f, 0)), "a byte too many")
}

// TestDatagramsAreWhatAStackMakes: a datagram with its checksum is found right, one without it is not, and the header says how to complete it.
func TestDatagramsAreWhatAStackMakes(t *testing.T) {
	for i := range 4 {
		d := Datagram{V6: i&1 != 0, TCP: i&2 != 0, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}, SrcPort: 1, DstPort: 2, Flags: ACK, Payload: []byte("odd")}
		whole, f := d.Whole(), d.Partial()
		v := ParseVnet(d.Header(0).Bytes())
		at := int(v.CSumStart)
		assert.Equal(t, uint16(0xffff), Sum16(whole[at:], uint32(d.Pseudo(len(whole)-at))), d.Kind())
		binary.BigEndian.PutUint16(f[at+int(v.CSumOff):], ^Sum16(f[at:], 0))
		assert.Equal(t, whole, f, d.Kind())
		if _, wrong := ParseTCP(d.Partial(), true); d.TCP && !d.V6 {
			assert.NotEmpty(t, wrong)
			got, wrong := ParseTCP(whole, true)
			assert.Empty(t, wrong)
			assert.Equal(t, d.Payload, got.Payload)
		}
	}
}
