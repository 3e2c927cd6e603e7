//go:build guest

package vfio

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bare.wire/nic"
	"bare.wire/pci"
)

// childVariable has this test binary, started once more, drive the second card by an access until it is killed.
const childVariable = "BAREWIRE_TEST_CHILD"

func TestMain(m *testing.M) {
	if access := os.Getenv(childVariable); access != "" {
		if err := child(access); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child receives on the second card. It prints a line when it begins.
func child(access string) error {
	number, err := strconv.Atoi(access)
	if err != nil {
		return err
	}
	p, err := newPair(pci.Access(number))
	if err != nil {
		return err
	}
	port, err := p.open(cards[1])
	if err != nil {
		return err
	}
	s, err := newStation(port, p.space, nic.Config{})
	if err != nil {
		return err
	}
	fmt.Println("receiving")
	s.drain()
	return port.Err()
}

// childCommand is this test binary as a child.
func childCommand(access pci.Access) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childVariable, access))
	return cmd
}

// tryChild runs a child that will not do well, and returns what it says.
func tryChild(access pci.Access, attr *syscall.SysProcAttr) (string, error) {
	cmd := childCommand(access)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// startChild starts a child and waits until it receives.
func startChild(t testing.TB, access pci.Access) *exec.Cmd {
	t.Helper()
	cmd := childCommand(access)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "receiving\n" {
		_ = cmd.Process.Kill()
		t.Fatalf("the child says %q, %v; %v", line, err, cmd.Wait())
	}
	return cmd
}

// testKilled kills a process that receives at full load: no DMA afterwards.
func testKilled(t *testing.T, access pci.Access) {
	free := freeHugePages(t)
	cmd := startChild(t, access)
	p := openFirst(t, access)
	a := startStation(t, p.ports[0], p.space, nic.Config{})
	a.up()
	stop := a.background(macOf(t, 1))
	defer stop()
	before := mustAsk(t, `{"do":"dma","card":1}`)
	within(t, 30*time.Second, "frames reach the child's memory", func() bool {
		return mustAsk(t, `{"do":"dma","card":1}`).Writes > before.Writes+200
	})
	killed := realTime.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	within(t, 20*time.Second, "bus mastering is off", func() bool { return command(t, cards[1])&pci.CommandBusMaster == 0 })
	off := realTime.Now().Sub(killed)
	if access == pci.Sysfs {
		// The one that is left is the guardian of the first card, which this process drives.
		within(t, 20*time.Second, "the guardian has ended", func() bool { return len(guardians(t)) == 1 })
	}
	// The load goes on, and nothing of it reaches memory.
	still := mustAsk(t, `{"do":"dma","card":1}`)
	asked := realTime.Now()
	sent := a.port.Stats().TxPackets
	within(t, 30*time.Second, "the load goes on", func() bool { return a.port.Stats().TxPackets > sent+500 })
	after := mustAsk(t, `{"do":"dma","card":1}`)
	if after.Reads != still.Reads || after.Writes != still.Writes {
		t.Errorf("DMA after the process is dead: %d reads, %d writes more", after.Reads-still.Reads, after.Writes-still.Writes)
	}
	last := asked.Add(-time.Duration(still.Ago)).Sub(killed)
	t.Logf("last DMA %v after the kill, bus mastering seen off after %v", last.Round(100*time.Microsecond), off.Round(100*time.Microsecond))
	stop()
	a.close()
	within(t, 20*time.Second, "the huge pages are free again", func() bool { return freeHugePages(t) == free })
	// The card can be taken again.
	again := openPair(t, access)
	a, b := again.stations(t, nic.Config{})
	a.send(b.port.Info().MAC, 20, 500)
	b.receive(20)
	a.close()
	b.close()
	_ = misuse() // the load filled a ring that nobody emptied
}

// openFirst opens the first card alone.
func openFirst(t testing.TB, access pci.Access) *pair {
	t.Helper()
	p := testPair(t, access)
	p.ports[0] = p.mustOpen(t, 0)
	return p
}

// macOf is the address that nicsim gives a card.
func macOf(t testing.TB, card int) [6]byte {
	t.Helper()
	return [6]byte{0x02, 0x82, 0x59, 0x9e, 0x00, byte(card + 1)}
}

// command is a card's PCI command register, as the kernel shows it.
func command(t testing.TB, card string) uint16 {
	t.Helper()
	f, err := os.Open("/sys/bus/pci/devices/" + card + "/config")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [2]byte
	if _, err := f.ReadAt(b[:], pci.ConfigCommand); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint16(b[:])
}

func freeHugePages(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// guardians are the process ids of the guardians that there are.
func guardians(t testing.TB) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(b), "barewire-guardian\x00") {
			continue // it has ended meanwhile, or is another
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
