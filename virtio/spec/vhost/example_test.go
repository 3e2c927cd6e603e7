package vhost_test

import (
	"fmt"

	"bare.wire/virtio/spec/vhost"
)

// A front end tells where the memory is; the back end reads it, and finds an address of the front end's in it.
func Example() {
	table := vhost.MemoryTable{{Addr: 4 << 30, Size: 2 << 20, UserAddr: 4 << 30}}
	sent := vhost.NewMessage(vhost.SetMemTable, table.Append(nil)).Append(nil)

	m, _, err := vhost.ParseMessage(sent)
	if err != nil {
		fmt.Println(err)
		return
	}
	const descriptors = 1 // that came with it
	got, err := m.MemoryTable(descriptors)
	fmt.Println(m, err)
	fmt.Println(got[0].Contains(4<<30+4096, 1500), got[0].Contains(6<<30, 1))

	m.Payload[8+8+7] = 0xff // a size that no file has
	_, err = m.MemoryTable(descriptors)
	fmt.Println(err != nil)
	// Output:
	// SET_MEM_TABLE (40 bytes) <nil>
	// true false
	// true
}
