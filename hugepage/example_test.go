package hugepage_test

import (
	"fmt"

	"bare.wire/hugepage"
)

// Memory for a ring and some buffers, on huge pages if the machine has any.
func ExampleAlloc() {
	r, err := hugepage.Alloc(hugepage.Config{Size: 64 << 10, Node: hugepage.AnyNode, Name: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()

	ring := r.Bytes()[:4096]
	ring[0] = 0xff
	fmt.Println(len(ring), r.Size() >= 64<<10, r.FD() >= 0)
	// Output: 4096 true true
}
