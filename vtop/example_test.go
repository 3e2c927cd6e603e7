package vtop_test

import (
	"context"
	"errors"
	"fmt"

	"bare.wire/hugepage"
	"bare.wire/vtop"
)

// What a driver writes into a descriptor is where the device finds the buffer.
func Example() {
	region, err := hugepage.Alloc(hugepage.Config{Size: 64 << 10, Node: hugepage.AnyNode, Name: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer region.Close()

	space := vtop.NewMapped()
	if err := space.Add(region); err != nil {
		fmt.Println(err)
		return
	}
	defer space.Remove(context.Background(), region)

	buffer := region.Bytes()[4096:6144]
	bus, err := space.Bus(region.Base(), region.Size())
	fmt.Printf("region at %#x, %v\n", bus, err)

	seen, err := space.Bytes(bus+4096, len(buffer)) // the device's side
	seen[0] = 42
	fmt.Println(buffer[0], err)
	// Output:
	// region at 0x100000000, <nil>
	// 42 <nil>
}

// A wrong address never reaches a device.
func ExampleSpace_Bytes() {
	space := vtop.NewMapped()
	_, err := space.Bytes(0x1234, 64)
	fmt.Println(err, errors.Is(err, vtop.ErrOutside))
	// Output: vtop: 64 bytes at bus address 0x1234: address outside every region true
}
