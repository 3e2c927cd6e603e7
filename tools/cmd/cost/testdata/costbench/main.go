// Costbench is a program to measure, as package main in ../.. wants it: `sum` takes a loop of a few instructions and `alloc`
// allocates.
package main

import (
	"flag"
	"fmt"
	"os"
)

//go:noinline
func sum(b *[16]uint64) (t uint64) {
	for _, v := range b {
		t += v
	}
	return t
}

var sink any

func main() {
	list := flag.Bool("list", false, "list the cases")
	name := flag.String("case", "", "the case")
	n := flag.Int("n", 1, "operations")
	flag.Parse()
	if *list {
		fmt.Println("sum 20000\nalloc")
		return
	}
	var b [16]uint64
	var t uint64
	for i := range *n {
		switch *name {
		case "sum":
			b[i&15] = uint64(i)
			t += sum(&b)
		case "alloc":
			sink = new([64]byte)
		default:
			fmt.Fprintln(os.Stderr, "no case", *name)
			os.Exit(2)
		}
	}
	sink = t
}
