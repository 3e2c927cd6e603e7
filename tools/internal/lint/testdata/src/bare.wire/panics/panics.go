package panics

import "os"

func panics(n int) {
	if n == 1 {
		panic("x") // want `panic: return an error`
	}
	if n == 2 {
		panic("x") // impossible: callers check n
	}
	if n == 3 {
		// impossible: callers check n, and this
		// reason needs two lines
		panic("x")
	}
	if n == 4 {
		// possible
		panic("x") // want `panic: return an error`
	}
	os.Exit(1) // want `does not end the process`
}
