//go:build guest

package dpdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"bare.wire/test/guest"
	"bare.wire/test/judges/dpdk/internal/debroot"
	"bare.wire/test/judges/internal/calls"
	"bare.wire/test/judges/internal/testpmd"
)

// Where the cards are in the guest.
var cards = []string{"0000:00:04.0", "0000:00:05.0"}

// ringPlugin is how mbufs are pooled; testpmd finds it by its path.
const ringPlugin = "usr/lib/x86_64-linux-gnu/librte_mempool_ring.so.23"

// machine is the guest: testpmd, its libraries and vfio-pci. The wire is nicsim's.
func machine(t *testing.T, wire string) guest.Machine {
	t.Helper()
	m := guest.Machine{
		IOMMU: true, ShareRAM: true, Memory: 1024, HugePages: 96, Modules: []string{"vfio_iommu_type1", "vfio-pci"}, Timeout: 5 * time.Minute,
	}
	if guest.Inside() {
		return m
	}
	fetch := func(_ context.Context, names ...string) ([]string, error) { return guest.Debian(t, names...), nil }
	files, err := debroot.Files(t.Context(), fetch,
		debroot.Item{Package: "dpdk-dev", File: "usr/bin/dpdk-testpmd"}, debroot.Item{Package: "librte-mempool-ring23", File: ringPlugin})
	require.NoError(t, err)
	m.Files = files
	h := newHost(t)
	m.Answer = calls.Serve(h.serve)
	m.Wrap = append(h.ns.Enter(), guest.Nicsim(t), "qemu", "--wire", wire, "--control", h.nicsim.Socket, "--")
	return m
}

// bench is what a check works with: testpmd, and the host behind the wire.
type bench struct {
	*testpmd.Session
	info     testpmd.Info
	patience time.Duration // for whatever the other side must do
}

// How long things may take. They bound a failure; nothing waits for them otherwise.
const (
	startTime = 60 * time.Second // testpmd's start, a port's start
	usually   = 20 * time.Second // for frames to come back
	faulty    = 3 * time.Second  // the same, with a fault in the card: long enough for a card without
)

// peer is where testpmd sends to.
var peer = net.HardwareAddr{2, 0, 0, 0, 0, 0x77}

// start starts testpmd on the first n cards, until the test ends.
func start(t *testing.T, n int) *bench {
	t.Helper()
	// EAL takes no plugin from below a directory that everybody may write to, and keeps files in /var/run.
	require.NoError(t, errors.Join(os.Chmod("/", 0o755), os.MkdirAll("/var/run", 0o755)))
	for _, c := range cards[:n] {
		require.NoError(t, guest.BindVFIO(c))
	}
	s, err := launch(n)
	require.NoError(t, err)
	b := &bench{Session: s, patience: usually}
	t.Cleanup(func() { b.end(t) })
	b.info, err = b.portInfo(0)
	require.NoError(t, err)
	return b
}

// launch starts testpmd.
func launch(n int) (*testpmd.Session, error) {
	args := []string{"--lcores", "0@0,1@0", "--in-memory", "--iova-mode=va", "--no-telemetry", "-d", "/" + ringPlugin}
	for _, c := range cards[:n] {
		args = append(args, "-a", c)
	}
	args = append(args, "--", "-i", "--total-num-mbufs=8192", "--rxd=256", "--txd=256", "--burst=16", "--eth-peer=0,"+peer.String())
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	return testpmd.Start(ctx, exec.Command("/usr/bin/dpdk-testpmd", args...))
}

// end has testpmd quit.
func (b *bench) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

// do gives testpmd commands, one after the other, until one fails; it returns the last answer.
func (b *bench) do(commands ...string) (text string, err error) {
	for _, c := range commands {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		text, err = b.Do(ctx, c)
		cancel()
		if err != nil {
			return text, err
		}
	}
	return text, nil
}

// reconfigure stops the ports, changes their configuration and starts them.
func (b *bench) reconfigure(commands ...string) error {
	all := append([]string{"port stop all"}, commands...)
	_, err := b.do(append(all, "port start all")...)
	return err
}

// forward runs f while the engine of the name forwards, and returns what testpmd says when it is stopped.
func (b *bench) forward(engine string, f func() error) (text string, err error) {
	if _, err := b.do("set fwd "+engine, "start"); err != nil {
		return "", err
	}
	err = f()
	text, stopped := b.do("stop")
	return text, errors.Join(err, stopped)
}

func (b *bench) portInfo(port int) (testpmd.Info, error) {
	text, err := b.do(fmt.Sprintf("show port info %d", port))
	if err != nil {
		return testpmd.Info{}, err
	}
	return testpmd.ParseInfo(text)
}

func (b *bench) stats(port int) (testpmd.PortStats, error) {
	text, err := b.do(fmt.Sprintf("show port stats %d", port))
	if err != nil {
		return testpmd.PortStats{}, err
	}
	return testpmd.ParsePortStats(text)
}

// exchange has the host send and receive.
func (b *bench) exchange(x exchange) (sent int, err error) {
	x.Port, x.Peer = b.info.MAC, peer
	a, err := b.ask(question{Exchange: &x})
	return a.Sent, err
}

// ask puts a question to the host. A fault of the traffic is an error.
func (b *bench) ask(q question) (answer, error) {
	q.Patience = b.patience
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	return calls.Ask[answer](ctx, q)
}

// control puts a request to nicsim, as a JSON object, and reads its answer into v.
func (b *bench) control(v any, format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	a, err := b.ask(question{Control: json.RawMessage(line)})
	if err == nil {
		err = calls.Done(a.Control, v)
	}
	if err != nil {
		return fmt.Errorf("nicsim: %s: %w", line, err)
	}
	return nil
}

// fault puts a fault into a card, or takes all of them out of it ("").
func (b *bench) fault(card int, name string) error {
	return b.control(nil, `{"do":"fault","card":%d,"name":%q}`, card, name)
}

// wrong is something that the card has seen done to it that its datasheet forbids.
type wrong struct{ Kind, Text string }

func (b *bench) misuse(card int) ([]wrong, error) {
	var a struct{ Misuse []wrong }
	err := b.control(&a, `{"do":"misuse","card":%d}`, card)
	return a.Misuse, err
}
