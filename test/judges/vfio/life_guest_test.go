//go:build guest

package vfio

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/test/guest"
)

// testAnyOrder closes two cards that share a container in either order; the one that is left goes on working.
func testAnyOrder(t *testing.T) {
	for _, first := range []int{0, 1} {
		p := openPair(t, pci.VFIO)
		a, b := p.stations(t, nic.Config{})
		a.send(b.port.Info().MAC, 5, 200)
		b.receive(5)
		one, other := a, b
		if first == 1 {
			one, other = b, a
		}
		one.close()
		other.port.Tx(0).Reclaim()
		if err := other.port.Stop(); err != nil {
			t.Error(err)
		}
		again, err := p.open(cards[first])
		if err != nil {
			t.Fatalf("open the first again while the second is open: %v", err)
		}
		one = startStation(t, again, p.space, nic.Config{})
		if err := other.port.Start(context.Background(), nic.Config{Pool: other.pool}); err != nil {
			t.Fatal(err)
		}
		one.up()
		other.up()
		one.send(other.port.Info().MAC, 5, 200)
		other.receive(5)
		one.close()
		other.close()
	}
	blameless(t)
}

// testOpenedAgain opens and closes cards many times: nothing is left of the last time, descriptors included.
func testOpenedAgain(t *testing.T, times int) {
	files := 0
	for k := range times {
		p := openPair(t, pci.VFIO)
		a, b := p.stations(t, nic.Config{})
		a.send(b.port.Info().MAC, 3, 100+k)
		b.receive(3)
		a.close()
		b.close()
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		if n := openFiles(t); k == 0 {
			files = n
		} else if n > files {
			t.Fatalf("time %d: %d files are open, %d were after the first", k, n, files)
		}
	}
	blameless(t)
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// testBusy opens a card that another process has: an error that says so, at once. When that process is gone it can be opened.
func testBusy(t *testing.T, access pci.Access, words ...string) {
	cmd := startChild(t, access)
	p := testPair(t, access)
	if _, err := p.open(cards[1]); err == nil {
		t.Error("a card that another process has can be opened")
	} else {
		contains(t, err, append(words, cards[1])...)
		t.Logf("%v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	within(t, wakeTime, "the card is free", func() bool {
		port, err := p.open(cards[1])
		return err == nil && port.Close() == nil
	})
	_ = misuse() // the child had no time to put its card to rest
}

// testNotBound opens cards that vfio-pci does not have, and by ways that do not fit: the errors name what to do.
func testNotBound(t *testing.T) {
	defer bind(t, "vfio-pci")
	for _, c := range []struct {
		driver string
		access pci.Access
		words  []string
	}{
		{"vfio-pci", pci.Sysfs, []string{"bound to the driver vfio-pci", "pktgen devices unbind " + cards[1]}},
		{"vfio-pci", pci.VFIONoIOMMU, []string{"there is an IOMMU"}},
		{"", pci.VFIO, []string{"not to vfio-pci", "pktgen devices bind " + cards[1]}},
		{"", pci.Sysfs, []string{"there is an IOMMU", "pktgen devices bind " + cards[1]}},
	} {
		if err := guest.Bind(cards[1], c.driver); err != nil {
			t.Fatal(err)
		}
		p := testPair(t, c.access)
		_, err := p.open(cards[1])
		contains(t, err, c.words...)
		t.Logf("driver %q, %v: %v", c.driver, c.access, err)
	}
}

// testAddresses shows that this is about something: the addresses in the descriptors are not those of the memory.
func testAddresses(t *testing.T) {
	p := openPair(t, pci.VFIO)
	a, b := p.stations(t, nic.Config{})
	a.send(b.port.Info().MAC, 5, 200)
	b.receive(5)
	last := mustAsk(t, `{"do":"dma","card":1}`).Last
	if _, err := p.space.Bytes(last, 1); err != nil {
		t.Errorf("the card's last access was at %#x: %v", last, err)
	}
	if last < 1<<32 {
		t.Errorf("the card's last access was at %#x: the space's addresses begin at 4 GiB, and this machine's memory ends below", last)
	}
	groups, err := filepath.Glob("/sys/kernel/iommu_groups/*/devices/0000:00:0[45].0")
	if err != nil || len(groups) != 2 {
		t.Errorf("the cards are in groups %q, %v", groups, err)
	}
	a.close()
	b.close()
	blameless(t)
}
