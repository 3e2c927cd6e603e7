package wall

import "time"

func excepted() { time.Sleep(1) }

func waits() {
	time.Sleep(time.Second)         // want "time.Sleep: time comes from a clock"
	now := time.Now                 // want "time.Now"
	_ = now().Add(time.Millisecond) // durations and methods are free
	<-time.After(1)                 // want "time.After"
	_ = time.NewTimer(1)            // want "time.NewTimer"
	_ = time.Unix(0, 0)
}
