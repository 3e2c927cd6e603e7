//go:build guest

package virtio

import (
	"testing"
	"time"

	"bare.wire/test/guest"
)

// cells are the cells that this run judges: all, or those in which every two values meet.
func cells(sysfs bool) (all []card) {
	rows := pairwise()
	if full() {
		rows = longRows()
	}
	for i, r := range rows {
		all = append(all, cellCard(i, r.cell(sysfs)))
	}
	return all
}

// TestGuestCellsVFIO judges the cells behind VT-d and vfio-pci. The legacy devices among them go past VT-d.
func TestGuestCellsVFIO(t *testing.T) {
	judgeCells(t, guest.Machine{IOMMU: true}, cells(false))
}

// TestGuestCellsSysfs judges the cells without VFIO and without an IOMMU.
func TestGuestCellsSysfs(t *testing.T) {
	judgeCells(t, guest.Machine{}, cells(true))
}

func judgeCells(t *testing.T, m guest.Machine, cards []card) {
	m.HugePages = 96
	m.Timeout = time.Duration(times(5, 18)) * time.Minute
	guest.Run(t, machine(t, m, cards), func(t *testing.T) {
		for _, c := range cards {
			t.Run(c.name, func(t *testing.T) { judge(t, c, c.address(0)) })
		}
	})
}
