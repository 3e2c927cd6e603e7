package main

import "os"

func main() {
	if len(os.Args) > 1 {
		os.Exit(1)
	}
	panic(1)
}
