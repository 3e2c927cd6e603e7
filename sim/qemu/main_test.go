package qemu

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/nic82599"
	"bare.wire/sim/qemu/qemutest"
)

// TestMain lets this binary pass for QEMU, when it is called as one.
func TestMain(m *testing.M) {
	if qemutest.Asked() {
		os.Exit(qemutest.Main(os.Args[1:], os.Stdout))
	}
	os.Exit(m.Run())
}

const (
	ramSize = 4 << 20
	bar0    = uint64(0xFEB00000)
	bar4    = bar0 + 0x20000
)

// rig is a function with a card in it, and the other sides of its sockets.
type rig struct {
	m     *Machine
	f     *Function
	card  *nic82599.Card
	proxy *qemutest.Proxy
	test  *qemutest.TestSocket
	ram   []byte
	ramFD int
	ctx   context.Context
}

// newRig makes a card in slot 4, with 4 MiB of RAM at 0, probed as QEMU and the firmware would.
func newRig(t *testing.T, wrap ...func(*Function, Card) Card) *rig {
	t.Helper()
	clk := clock.Real()
	m := newMachine(Config{Clock: clk}, []string{"none"})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	f, err := m.Add(Slot{Slot: 4})
	require.NoError(t, err)
	world := sim.NewWorld(clk)
	card := nic82599.New(nic82599.Config{Name: "card", Memory: f.Memory(), World: world, MAC: [6]byte{2, 0, 0, 0, 0, 1}})
	attached := Card(card)
	for _, w := range wrap {
		attached = w(f, attached)
	}
	require.NoError(t, f.Attach(attached))
	end, err := f.connect()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	r := &rig{m: m, f: f, card: card, proxy: qemutest.NewProxy(end), test: qemutest.NewTestSocket(), ctx: ctx}
	ours, theirs := net.Pipe()
	m.test.connect(ours)
	beside.Go(func() { _ = r.test.Serve(theirs) }) // until the pipe is closed
	beside.Go(func() { m.irqs.run(ctx, m.unit) })
	beside.Go(func() { _ = world.Run(ctx) })
	served := make(chan error, 1)
	beside.Go(func() { served <- f.serve() })
	t.Cleanup(func() {
		_ = r.proxy.Close() // some tests have
		require.NoError(t, <-served)
		cancel()
		m.test.close()
		require.NoError(t, theirs.Close())
		beside.Wait()
		m.running.Wait()
		require.NoError(t, card.Close())
	})
	r.ramFD, r.ram = memory(t, ramSize)
	require.NoError(t, r.proxy.Memory(qemutest.Section{FD: r.ramFD, Size: ramSize}))
	require.NoError(t, r.proxy.IRQFDs())
	_, err = r.proxy.Probe(uint32(bar0))
	require.NoError(t, err)
	return r
}

// memory is a memfd and its bytes.
func memory(t *testing.T, size int) (int, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Ftruncate(fd, int64(size)))
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return fd, b
}

func (r *rig) read(t *testing.T, off uint32, size int) uint64 {
	t.Helper()
	v, err := r.proxy.Read(bar0+uint64(off), size, true)
	require.NoError(t, err)
	return v
}

func (r *rig) write(t *testing.T, off, v uint32) {
	t.Helper()
	require.NoError(t, r.proxy.Write(bar0+uint64(off), 4, true, uint64(v)))
}

// waitIRQ waits until QEMU has been told of n interrupts.
func (r *rig) waitIRQ(t *testing.T, n int) []string {
	t.Helper()
	got := r.test.Wait(n, t.Context().Done())
	require.Len(t, got, n)
	return got
}

// asQEMU makes this binary pass for QEMU, with a behaviour of package qemutest.
func asQEMU(t *testing.T, behaviour string) []string {
	t.Helper()
	t.Setenv(qemutest.Env, "1")
	return []string{os.Args[0], "-name", behaviour}
}

// machineOf is a machine with a card, ready to run.
func machineOf(t *testing.T, command []string, out io.Writer) *Machine {
	t.Helper()
	clk := clock.Real()
	m, err := New(t.Context(), Config{Command: command, Clock: clk, Stdout: out, Stderr: out})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	f, err := m.Add(Slot{Slot: 5})
	require.NoError(t, err)
	card := nic82599.New(nic82599.Config{Name: "card", Memory: f.Memory(), World: sim.NewWorld(clk), MAC: [6]byte{2, 0, 0, 0, 0, 1}})
	require.NoError(t, f.Attach(card))
	return m
}

func TestAMachineRunsToItsEndAndItsStatusIsHandedOn(t *testing.T) {
	var out bytes.Buffer
	m := machineOf(t, asQEMU(t, qemutest.Obedient), &out)
	status, err := m.Run(t.Context())
	require.NoError(t, err, out.String())
	require.Equal(t, 7, status, out.String())
	require.Contains(t, out.String(), "function 0: 8086:10fb, STATUS 00080000")
	require.Contains(t, out.String(), "set_irq_in ioapic unnamed-gpio-in 21 1", "slot 5 has pin 21")
	require.Contains(t, out.String(), "set_irq_in ioapic unnamed-gpio-in 21 0")
	require.NoError(t, m.Close())
}

func TestAMachineThatIsCancelledEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := machineOf(t, asQEMU(t, qemutest.Hanging), writerFunc(func(b []byte) (int, error) {
		cancel() // it has said that it hangs
		return len(b), nil
	}))
	status, err := m.Run(ctx)
	require.NoError(t, err)
	require.Equal(t, 128+int(syscall.SIGTERM), status)
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestAMachineThatBreaksTheProtocolIsEnded(t *testing.T) {
	m := machineOf(t, asQEMU(t, qemutest.Babbling), io.Discard)
	_, err := m.Run(t.Context())
	require.ErrorContains(t, err, "slot 5: proxy protocol: unexpected command 99")
}

func TestAMachineWithoutACardDoesNotStart(t *testing.T) {
	m, err := New(t.Context(), Config{Command: asQEMU(t, qemutest.Obedient)})
	require.NoError(t, err)
	defer m.Close()
	_, err = m.Add(Slot{Slot: 4})
	require.NoError(t, err)
	_, err = m.Run(t.Context())
	require.ErrorContains(t, err, "the function in slot 4 has no card")
	_, err = m.Add(Slot{Slot: 32})
	require.ErrorContains(t, err, "slot 32")
}

// TestQEMUDiesWithItsStarter has a child of ours start a QEMU that hangs, and kills the child. Nothing is left of either.
func TestQEMUDiesWithItsStarter(t *testing.T) {
	const env = "BAREWIRE_START_AND_HANG"
	if os.Getenv(env) != "" {
		m := machineOf(t, asQEMU(t, qemutest.Hanging), os.Stdout)
		_, _ = m.Run(t.Context())
		return
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	tmp := t.TempDir()
	child, err := os.StartProcess(os.Args[0], []string{os.Args[0], "-test.run=^" + t.Name() + "$"}, &os.ProcAttr{
		Env: append(os.Environ(), env+"=1", "TMPDIR="+tmp), Files: []*os.File{nil, w, w},
	})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	word := make([]byte, 8)
	_, err = io.ReadFull(r, word)
	require.NoError(t, err)
	require.Equal(t, "hanging\n", string(word))
	require.NoError(t, child.Kill())
	_, err = child.Wait()
	require.NoError(t, err)
	// Its output ends when the last one who had it is gone: QEMU.
	require.NoError(t, r.SetReadDeadline(clock.Real().Now().Add(20*time.Second)))
	rest, err := io.ReadAll(r)
	require.NoError(t, err, "QEMU lives on")
	require.Empty(t, strings.TrimSpace(string(rest)))
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAQEMUThatIsNotThereIsTold(t *testing.T) {
	_, err := New(t.Context(), Config{Command: []string{"qemu-system-none"}})
	require.ErrorContains(t, err, "apt-get install qemu-system-x86")
	_, err = New(t.Context(), Config{})
	require.ErrorIs(t, err, ErrCommand)
	_, err = New(t.Context(), Config{Command: []string{"/bin/echo"}})
	require.ErrorContains(t, err, "no device x-pci-proxy-dev")
	_, err = New(t.Context(), Config{Command: []string{"/bin/false"}})
	require.ErrorContains(t, err, "-device help")
	require.False(t, errors.Is(err, ErrCommand))
}
