package qemu

import (
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/sim/qemu/qemutest"
)

// pair is both ends of a proxy's socket.
func pair(t testing.TB) (*conn, *qemutest.Proxy) {
	t.Helper()
	ours, theirs, err := socketPair("proxy")
	require.NoError(t, err)
	c, p := newConn(ours), qemutest.NewProxy(theirs)
	t.Cleanup(func() {
		c.close()
		_ = p.Close() // some tests have
	})
	return c, p
}

func TestMessagesComeWithTheirDescriptors(t *testing.T) {
	c, p := pair(t)
	fd, ram := memory(t, 4096)
	ram[0] = 42
	require.NoError(t, p.Memory(qemutest.Section{FD: fd, Size: 4096}, qemutest.Section{FD: fd, GPA: 1 << 32, Size: 4096}))
	m, err := c.receive()
	require.NoError(t, err)
	require.Equal(t, cmdSyncSysmem, m.cmd)
	require.Len(t, m.fds, 2)
	var b [1]byte
	_, err = unix.Pread(m.fds[1], b[:], 0)
	require.NoError(t, err)
	require.Equal(t, byte(42), b[0])
	flags, err := unix.FcntlInt(uintptr(m.fds[0]), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.Equal(t, unix.FD_CLOEXEC, flags, "not for the next child")
	fds := m.fds
	m.close()
	for _, fd := range fds {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.ErrorIs(t, err, unix.EBADF)
	}
}

func TestBadMessagesAreErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		cmd     int32
		payload int
		want    string
	}{
		{"no command", 99, 0, "unexpected command 99"},
		{"a negative one", -1, 0, "unexpected command -1"},
		{"an answer", 1, 8, "unexpected RET"},
		{"a size of another version", 2, 16, "PCI_CFGWRITE of 16 bytes, want 12"},
		{"far too long", 0, 1 << 16, "SYNC_SYSMEM of 65536 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, p := pair(t)
			require.NoError(t, p.Send(c.cmd, make([]byte, c.payload)))
			_, err := r.receive()
			require.ErrorContains(t, err, c.want)
		})
	}
}

// openFDs counts our descriptors.
func openFDs(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(d)
}

func TestABadMessageLeavesNoDescriptorOpen(t *testing.T) {
	c, p := pair(t)
	fd, _ := memory(t, 4096)
	before := openFDs(t)
	require.NoError(t, p.Send(99, nil, fd, fd, fd))
	_, err := c.receive()
	require.Error(t, err)
	require.Equal(t, before, openFDs(t))
}

func TestMoreDescriptorsThanSectionsAreRefused(t *testing.T) {
	c, p := pair(t)
	fd, _ := memory(t, 4096)
	before := openFDs(t)
	require.NoError(t, p.Send(qemutest.SyncMemory, make([]byte, 192), fd, fd, fd, fd, fd, fd, fd, fd, fd))
	_, err := c.receive()
	require.ErrorContains(t, err, "descriptors")
	require.Equal(t, before, openFDs(t))
}

func TestTheEndOfTheSocketIsTheEnd(t *testing.T) {
	c, p := pair(t)
	require.NoError(t, p.Close())
	_, err := c.receive()
	require.ErrorIs(t, err, io.EOF)
}

func TestAnEndInsideAMessageIsAnError(t *testing.T) {
	for _, n := range []int{8, 16, 20} {
		ours, theirs, err := socketPair("proxy")
		require.NoError(t, err)
		c := newConn(ours)
		b := make([]byte, 20)
		binary.NativeEndian.PutUint32(b, uint32(cmdConfigRead))
		binary.NativeEndian.PutUint64(b[8:], 12)
		_, err = theirs.Write(b[:n])
		require.NoError(t, err)
		require.NoError(t, theirs.Close())
		_, err = c.receive()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "after %d bytes", n)
		c.close()
	}
}

// FuzzMessages feeds the decoders what a QEMU must not send.
func FuzzMessages(f *testing.F) {
	seed := func(cmd command, n int) []byte {
		b := make([]byte, headerLen+n)
		binary.NativeEndian.PutUint32(b, uint32(cmd))
		binary.NativeEndian.PutUint64(b[8:], uint64(n))
		return b
	}
	for cmd, n := range payloads {
		f.Add(seed(command(cmd), max(n, 0)), 1)
	}
	f.Add([]byte(strings.Repeat("\xff", headerLen+192)), 8)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if len(b) < headerLen {
			return
		}
		cmd, size, err := decodeHeader((*[headerLen]byte)(b))
		if err == nil && (size > maxPayload || size != payloads[cmd]) {
			t.Fatalf("%v with %d bytes", cmd, size)
		}
		rest := b[headerLen:]
		if a, err := decodeConfig(rest); err == nil && (a.off > 0xFFF || a.size != 1 && a.size != 2 && a.size != 4) {
			t.Fatalf("%+v", a)
		}
		if a, err := decodeBAR(rest); err == nil && a.size != 1 && a.size != 2 && a.size != 4 && a.size != 8 {
			t.Fatalf("%+v", a)
		}
		list, err := decodeSections(rest, n)
		if err == nil && len(list) != n {
			t.Fatalf("%d sections of %d", len(list), n)
		}
		for _, s := range list {
			if s.size == 0 || s.gpa+s.size < s.gpa || s.off+s.size < s.off {
				t.Fatalf("%+v", s)
			}
		}
	})
}
