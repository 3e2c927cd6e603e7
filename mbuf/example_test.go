package mbuf_test

import (
	"fmt"

	"bare.wire/hugepage"
	"bare.wire/mbuf"
	"bare.wire/vtop"
)

// must stands for the error handling of the examples.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func Example() {
	// A pool once; a cache for each worker.
	pool := must(mbuf.NewPool(mbuf.Config{Name: "example", Space: vtop.NewMapped(), Buffers: 64}))
	cache := pool.NewCache()

	b := cache.Alloc() // nil when the pool is exhausted
	payload := must(b.Reserve(5))
	for i := range payload { // written in place
		payload[i] = "hello"[i]
	}
	fmt.Printf("%s, room in front %d, behind %d\n", b.Bytes(), b.Headroom(), b.Tailroom())

	cache.Free(b)
	cache.Close()
	fmt.Println(pool.Close())
	// Output:
	// hello, room in front 192, behind 2043
	// <nil>
}

func ExamplePool() {
	pool := must(mbuf.NewPool(mbuf.Config{
		Name: "rx", Space: vtop.NewMapped(), Buffers: 64,
		ReserveReceive: 8, ReserveControl: 8,
	}))
	normal, control := pool.NewCache(), pool.NewCacheAt(mbuf.Control)
	var held []*mbuf.Buf
	for b := normal.Alloc(); b != nil; b = normal.Alloc() {
		held = append(held, b)
	}
	ack := control.Alloc() // still there: a frame that lets others be freed
	fmt.Println(len(held), ack != nil, pool.Stats().Failed[mbuf.Normal])

	normal.FreeBulk(held)
	control.Free(ack)
	normal.Close()
	control.Close()
	fmt.Println(pool.Close())
	// Output:
	// 48 true 1
	// <nil>
}

func ExampleChain_Split() {
	pool := must(mbuf.NewPool(mbuf.Config{Space: vtop.NewMapped(), Buffers: 64}))
	cache := pool.NewCache()

	var stream mbuf.Chain
	for _, s := range []string{"GET / HT", "TP/1.1\r\n", "rest"} {
		b := cache.Alloc()
		room := must(b.Reserve(len(s)))
		for i := range room {
			room[i] = s[i]
		}
		stream.Append(b)
	}
	// The first line and what is behind it; the block that the cut goes through is shared, not copied.
	line := must(stream.Split(cache, 14))
	for piece := range line.Pieces() {
		fmt.Printf("%q ", piece)
	}
	fmt.Println(line.Len(), stream.Len(), line.Head().Next().Refs())

	line.Free()
	stream.Free()
	cache.Close()
	fmt.Println(pool.Close())
	// Output:
	// "GET / HT" "TP/1.1" 14 6 2
	// <nil>
}

func ExampleBuf_Prepend() {
	pool := must(mbuf.NewPool(mbuf.Config{Space: vtop.NewMapped(), Buffers: 64}))
	cache := pool.NewCache()

	b := cache.Alloc()
	must(b.Reserve(100))
	// The only view, and there is headroom: in place.
	b, header, err := b.Prepend(cache, 20)
	fmt.Println(len(header), b.Segs(), b.FrameLen(), err)

	// Somebody else holds the bytes, to send them again perhaps: the header gets a buffer of its own in front.
	kept := b.Clone(cache)
	b, header, err = b.Prepend(cache, 14)
	fmt.Println(len(header), b.Segs(), b.FrameLen(), err, kept.FrameLen())

	cache.Free(b)
	cache.Free(kept)
	cache.Close()
	fmt.Println(pool.Close())
	// Output:
	// 20 1 120 <nil>
	// 14 2 134 <nil> 120
	// <nil>
}

func ExamplePool_External() {
	space := vtop.NewMapped()
	pool := must(mbuf.NewPool(mbuf.Config{Space: space, Buffers: 64}))
	cache := pool.NewCache()

	// Memory of the application's that cards can reach: a file's contents that many clients are sent.
	file := must(hugepage.Alloc(hugepage.Config{Size: 1 << 20, Node: hugepage.AnyNode, Name: "file"}))
	fmt.Println(space.Add(file))

	b := must(pool.External(file, 4096, 1000, func() { fmt.Println("sent") }))
	head, _, err := b.Prepend(cache, 54) // headers go in front, not into the file
	fmt.Println(head.Segs(), head.FrameLen(), err)

	head.Free() // a card has sent it
	fmt.Println("freed")
	pool.RunDone() // a worker's loop

	cache.Close()
	fmt.Println(pool.Close())
	// Output:
	// <nil>
	// 2 1054 <nil>
	// freed
	// sent
	// <nil>
}
