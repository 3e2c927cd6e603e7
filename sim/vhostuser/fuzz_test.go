package vhostuser

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// FuzzFrontEnd has a front end say anything, with memfds and eventfds beside it, and a real device behind: no message makes a panic,
// a hang, or a descriptor that stays open. A message is a request, what comes with it, a length, and so many bytes.
func FuzzFrontEnd(f *testing.F) {
	message := func(r vhost.Request, fds byte, payload []byte) []byte {
		return append([]byte{byte(r), fds, byte(len(payload))}, payload...)
	}
	var whole []byte
	for _, m := range [][]byte{
		message(vhost.SetOwner, 0, nil),
		message(vhost.SetProtocolFeatures, 0, vhost.AppendU64(nil, uint64(protocolFeatures))),
		message(vhost.SetFeatures, 0, vhost.AppendU64(nil, 1<<32|1<<30)),
		message(vhost.SetMemTable, 1, vhost.MemoryTable{{Addr: guestBase, Size: 1 << 16, UserAddr: userBase}}.Append(nil)),
		message(vhost.SetVringNum, 0, state(1, 16)),
		message(vhost.SetVringAddr, 0, vhost.VringAddr{Index: 1, Desc: userBase, Avail: userBase + 4096, Used: userBase + 8192}.Append(nil)),
		message(vhost.SetVringCall, 9, vhost.VringFD{Index: 1}.Append(nil)),
		message(vhost.SetVringKick, 9, vhost.VringFD{Index: 1}.Append(nil)),
		message(vhost.SetVringEnable, 0, state(1, 1)),
		message(vhost.AddMemReg, 1, vhost.SingleRegion{Region: vhost.Region{Addr: 1 << 40, Size: 4096, UserAddr: 1 << 41}}.Append(nil)),
		message(vhost.GetVringBase, 0, state(1, 0)),
		message(vhost.SetStatus, 0, vhost.AppendU64(nil, 0)),
	} {
		f.Add(m)
		whole = append(whole, m...)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := openDescriptors(t)
		world := sim.NewWorld(clock.NewVirtual(time.Unix(0, 0)))
		mem := &Memory{}
		dev, err := virtionet.New(virtionet.Config{Name: "fuzzed", Memory: mem, World: world, Net: noNet{}, Pairs: 2})
		if err != nil {
			t.Fatal(err)
		}
		back := &Backend{cfg: Config{World: world}, log: discard, dev: dev, mem: mem}
		s := newSession(nil, back, func(error) {})
		for range 64 {
			if len(b) < 3 {
				break
			}
			n := min(int(b[2]), len(b)-3)
			m := vhost.Message{Request: vhost.Request(b[0]), Flags: vhost.Version, Payload: b[3 : 3+n]}
			fds := &descriptors{give(t, b[1])}
			_, _ = s.do(m, fds)
			vhost.CloseFDs(fds.list)
			world.Step()
			b = b[3+n:]
		}
		s.close()
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
		if len(mem.table) > 0 {
			t.Fatal("memory is still mapped")
		}
		if after := openDescriptors(t); after != before {
			t.Fatalf("%d descriptors are open, %d were before", after, before)
		}
	})
}

// give makes descriptors: the low three bits are how many, the next says of what kind.
func give(t *testing.T, what byte) (fds []int) {
	for range what & 7 {
		var fd int
		var err error
		if what&8 != 0 {
			fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
		} else if fd, err = unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC); err == nil {
			err = unix.Ftruncate(fd, 1<<20)
		}
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// discard is a log that nobody reads.
var discard = slog.New(slog.DiscardHandler)

// noNet is a Net with nothing behind it.
type noNet struct{}

func (noNet) Send(virtionet.Header, []byte, int64)                  {}
func (noNet) Next() (int64, bool)                                   { return 0, false }
func (noNet) Receive(int64) (h virtionet.Header, b []byte, ok bool) { return h, nil, false }
func (noNet) Offloads() spec.Features                               { return 0 }
func (noNet) SetOffloads(spec.Features)                             {}
func (noNet) Up() bool                                              { return true }
func (noNet) SetUp(bool)                                            {}
func (noNet) OnArrival(func(int64))                                 {}
func (noNet) OnChange(func(bool))                                   {}
