// Command misuse does one thing that must not be done with a buffer, named by its argument. The tests of package mbuf build
// it with the sanitizer or the race detector and see it fail; "ok" does everything right.
package main

import (
	"errors"
	"fmt"
	"os"

	"bare.wire/mbuf"
	"bare.wire/vtop"
)

var modes = map[string]func(p *mbuf.Pool, c *mbuf.Cache) error{
	"ok":         ok,
	"race":       race,
	"uaf":        useAfterFree,
	"write":      writeAfterFree,
	"doublefree": doubleFree,
	"sealed":     changeUnderTheCard,
	"leak":       leak,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("nothing was found")
}

func run(args []string) error {
	if len(args) != 1 || modes[args[0]] == nil {
		return errors.New("usage: misuse MODE")
	}
	p, err := mbuf.NewPool(mbuf.Config{Name: "misused", Space: vtop.NewMapped(), Buffers: 8})
	if err != nil {
		return err
	}
	c := p.NewCache()
	if err := modes[args[0]](p, c); err != nil {
		return err
	}
	c.Close()
	return p.Close()
}

func newFrame(c *mbuf.Cache) *mbuf.Buf {
	b := c.Alloc()
	room, err := b.Reserve(64)
	if err != nil {
		panic(err)
	}
	for i := range room {
		room[i] = byte(i)
	}
	return b
}

// ok shares a frame between two goroutines, which both read it, and frees it on both.
func ok(_ *mbuf.Pool, c *mbuf.Cache) error {
	b := newFrame(c)
	v := b.Clone(c)
	done := make(chan byte)
	go func() {
		sum := byte(0)
		for _, x := range v.Bytes() {
			sum += x
		}
		v.Free()
		done <- sum
	}()
	_ = b.Bytes()[10]
	<-done
	if !b.Writable() {
		return errors.New("the last owner may not write")
	}
	b.Bytes()[10]++
	c.Free(b)
	return nil
}

// race writes to a frame that another goroutine reads through a view of its own.
func race(_ *mbuf.Pool, c *mbuf.Cache) error {
	b := newFrame(c)
	v := b.Clone(c)
	done := make(chan byte)
	go func() { done <- readPayload(v) }()
	writePayload(b)
	<-done
	v.Free()
	c.Free(b)
	return nil
}

//go:noinline
func readPayload(b *mbuf.Buf) byte { return b.Bytes()[10] }

//go:noinline
func writePayload(b *mbuf.Buf) { b.Bytes()[10] = 99 }

func useAfterFree(_ *mbuf.Pool, c *mbuf.Cache) error {
	b := newFrame(c)
	b.Free()
	c.Free(newFrame(c))
	_ = b.Bytes()
	return nil
}

func writeAfterFree(_ *mbuf.Pool, c *mbuf.Cache) error {
	b := newFrame(c)
	kept := b.Bytes()
	c.Free(b)
	kept[3] = 0
	for range 8 {
		_ = c.Alloc()
	}
	return nil
}

func doubleFree(_ *mbuf.Pool, c *mbuf.Cache) error {
	b := newFrame(c)
	b.Free()
	c.Free(newFrame(c))
	b.Free()
	return nil
}

func changeUnderTheCard(_ *mbuf.Pool, c *mbuf.Cache) error {
	b := newFrame(c)
	b.Seal()
	b.Bytes()[5]++
	b.Unseal()
	c.Free(b)
	return nil
}

func leak(_ *mbuf.Pool, c *mbuf.Cache) error {
	_ = newFrame(c)
	return nil
}
