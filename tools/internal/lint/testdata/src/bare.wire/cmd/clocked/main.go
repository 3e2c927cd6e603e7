package main

import "time"

func main() {
	_ = time.Now() // want "time.Now"
}
