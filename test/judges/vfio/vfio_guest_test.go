//go:build guest

package vfio

import (
	"testing"
	"time"

	"bare.wire/nic/nictest"
	"bare.wire/pci"
	"bare.wire/test/guest"
)

// short are the situations of the conformance suite that every run sees; the long run sees all of them.
var short = map[string]bool{
	"FramesOfEveryLength": true, "RingFullKeepsFrames": true, "FramesThatCanNeverBeSent": true, "ChecksumsOnSending": true,
	"FramesAreCut": true, "ChecksumsOnReception": true, "GatherOfManySegments": true, "ScatterOverSmallBuffers": true,
	"JumboFrames": true, "PoolRunsDry": true, "StopWithFramesInFlight": true, "StatisticsAreExact": true,
	"RSSKeepsFlowsTogether": true, "AddressFilters": true, "VLANTagIsStripped": true, "ArmAndWait": true, "ArmForSending": true,
	"LinkDownAndUp": true, "Removal": true, "RemovalWakesSleepers": true, "NothingIsAllocated": true,
}

// conformance runs the suite, or what there is time for.
func conformance(t *testing.T, access pci.Access) {
	open := func(t testing.TB, _ uint64) *nictest.Bench { return openSet(t, access).bench(t) }
	nictest.TestSome(t, open, func(situation string) bool {
		if access == pci.Sysfs && situation == "LongBuffers" {
			t.Log("not looked at: LongBuffers; few of its buffers lie in one piece of physical memory, whose huge pages come as they come")
			return false
		}
		return full() || short[situation]
	})
}

// TestGuestVFIO is the driver behind vfio-pci and VT-d.
func TestGuestVFIO(t *testing.T) {
	m := cardsMachine(t, guest.Machine{
		IOMMU: true, Modules: []string{"vfio-pci", "vfio_iommu_type1"}, HugePages: 64, CPUs: 1, Timeout: time.Duration(pick(9, 20)) * time.Minute,
	})
	guest.Run(t, m, func(t *testing.T) {
		bind(t, "vfio-pci")
		t.Run("addresses", testAddresses)
		t.Run("conformance", func(t *testing.T) { conformance(t, pci.VFIO) })
		t.Run("each queue wakes its own sleeper", testQueueWakes)
		t.Run("no wake is lost", func(t *testing.T) { testNoWakeIsLost(t, pci.VFIO, pick(1000, 10000)) })
		t.Run("the link wakes", testLinkWakes)
		t.Run("an address outside the map is refused", testRefused)
		t.Run("an address outside the map is read", testForcedRead)
		t.Run("an address outside the map is written", testForcedWrite)
		t.Run("closed in any order", testAnyOrder)
		t.Run("opened again and again", func(t *testing.T) { testOpenedAgain(t, pick(10, 50)) })
		t.Run("busy", func(t *testing.T) { testBusy(t, pci.VFIO, "busy") })
		t.Run("not bound", testNotBound)
		t.Run("killed under load", func(t *testing.T) { testKilled(t, pci.VFIO) })
		t.Run("unplugged under load", testUnplugged)
		if full() { // the kernel waits a minute for a reset of a card that is not there
			t.Run("pulled out under load", testPulledOut)
		}
	})
}
