package pci_test

import (
	"context"
	"fmt"

	"bare.wire/pci"
	"bare.wire/vtop"
)

// A card that is bound to vfio-pci is opened, and found to be there.
func ExampleOpener() {
	space := vtop.NewMapped()
	opener := (&pci.Host{}).NewOpener(space, pci.OpenOptions{})
	defer opener.Close()

	a, err := pci.ParseAddress("0000:03:00.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := opener.Open(context.Background(), a)
	if err != nil {
		fmt.Println(err) // which says what to do: bind it, switch the IOMMU on
		return
	}
	bar, err := f.BAR(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("STATUS %#x\n", bar.Read32(8))
}
