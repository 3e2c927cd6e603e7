//go:build guest

package vfio

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/pci"
	"bare.wire/test/guest"
	"bare.wire/vtop"
)

// kernelCard is a card of QEMU's, which the kernel's own driver has.
const kernelCard = "0000:00:03.0"

// TestGuestSysfs is the driver on a machine without an IOMMU and without VFIO: resource0, huge pages, and the guardian.
func TestGuestSysfs(t *testing.T) {
	m := cardsMachine(t, guest.Machine{
		Modules: []string{"virtio_net", "virtio_pci"}, HugePages: 96, CPUs: 1, Timeout: 9 * time.Minute,
		QEMU: []string{"-device", "virtio-net-pci,addr=3"},
	})
	guest.Run(t, m, func(t *testing.T) {
		bind(t, "")
		t.Run("guarded", testGuarded)
		t.Run("conformance", func(t *testing.T) { conformance(t, pci.Sysfs) })
		t.Run("busy", func(t *testing.T) { testBusy(t, pci.Sysfs, "another process drives this device") })
		t.Run("refused", testSysfsRefused)
		t.Run("no wake is lost", func(t *testing.T) { testNoWakeIsLost(t, pci.Sysfs, pick(300, 3000)) })
		t.Run("killed under load", func(t *testing.T) { testKilled(t, pci.Sysfs) })
		t.Run("the guardian is killed", testGuardianKilled)
	})
}

// testGuarded looks at who is there while cards are open, and after.
func testGuarded(t *testing.T) {
	free := freeHugePages(t)
	p := openPair(t, pci.Sysfs)
	a, b := p.stations(t, nic.Config{})
	if n := len(guardians(t)); n != len(cards) {
		t.Errorf("%d guardians for %d cards", n, len(cards))
	}
	if got := freeHugePages(t); got >= free {
		t.Errorf("%d huge pages are free, %d were: the pools are elsewhere", got, free)
	}
	a.send(b.port.Info().MAC, 10, 300)
	b.receive(10)
	// Here bus addresses are physical ones, all below the end of memory.
	if last := mustAsk(t, `{"do":"dma","card":1}`).Last; last >= 4<<30 {
		t.Errorf("the card's last access was at %#x, which is no RAM of this machine", last)
	}
	a.close()
	b.close()
	within(t, 10*time.Second, "the guardians have ended", func() bool { return len(guardians(t)) == 0 })
	within(t, 10*time.Second, "the huge pages are free again", func() bool { return freeHugePages(t) == free })
	blameless(t)
}

// testSysfsRefused opens where something is missing: the errors say what.
func testSysfsRefused(t *testing.T) {
	t.Run("the kernel's card", func(t *testing.T) {
		if got := guest.Driver(kernelCard); got != "virtio-pci" {
			t.Fatalf("the kernel's card has driver %q", got)
		}
		p := testPair(t, pci.Sysfs)
		_, err := p.open(kernelCard)
		contains(t, err, "bound to the driver virtio-pci", "pktgen devices unbind "+kernelCard)
	})
	t.Run("by VFIO", func(t *testing.T) {
		p := testPair(t, pci.VFIO)
		_, err := p.open(cards[0])
		contains(t, err, "there is no IOMMU", "access=sysfs")
	})
	t.Run("addresses that are not physical", func(t *testing.T) {
		space := vtop.NewMapped()
		p := &pair{space: space, opener: (&pci.Host{}).NewOpener(space, pci.OpenOptions{Access: pci.Sysfs})}
		_, err := p.open(cards[0])
		contains(t, err, "physical")
	})
	t.Run("without huge pages", func(t *testing.T) {
		const pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
		had, err := os.ReadFile(pages)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pages, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.WriteFile(pages, had, 0); err != nil {
				t.Error(err)
			}
		}()
		p := openPair(t, pci.Sysfs)
		_, err = mbuf.NewPool(mbuf.Config{Name: "ordinary", Space: p.space, Buffers: 64})
		contains(t, err, "nr_hugepages")
		for _, port := range p.ports {
			if err := port.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("without root", func(t *testing.T) {
		out, err := tryChild(pci.Sysfs, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
		if err == nil || !strings.Contains(out, "root") && !strings.Contains(out, "CAP_SYS_ADMIN") {
			t.Errorf("nobody's process says %q, %v", out, err)
		}
		t.Logf("%s", out)
	})
}

// testGuardianKilled kills the guardian: its card is not driven without one.
func testGuardianKilled(t *testing.T) {
	p := openPair(t, pci.Sysfs)
	a, b := p.stations(t, nic.Config{})
	stop := a.background(b.port.Info().MAC)
	for _, pid := range guardians(t) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	b.drain() // ends because the port has gone
	isGone(t, b.port.Err())
	contains(t, b.port.Err(), "guardian")
	within(t, 10*time.Second, "bus mastering is off", func() bool {
		return (command(t, cards[0])|command(t, cards[1]))&pci.CommandBusMaster == 0
	})
	stop()
	a.close()
	b.close()
	_ = misuse() // they were stopped in the middle of what they did
}
