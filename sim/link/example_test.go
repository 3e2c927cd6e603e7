package link_test

import (
	"fmt"
	"net/url"
	"time"

	"bare.wire/sim/link"
)

// A wire of one gigabit with some loss: what did not arrive is on record.
func Example() {
	wire, err := link.New(link.Config{Rate: 1e9, Delay: 5 * time.Microsecond, Loss: 0.2, Seed: 2, Record: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range int64(10) {
		wire.A().Transmit(make([]byte, 1514), i*20_000)
	}
	for now := int64(0); now < 1_000_000; {
		at, ok := wire.B().Next()
		if !ok {
			break
		}
		now = at
		f, _ := wire.B().Receive(now)
		fmt.Println("frame", f.ID, "after", time.Duration(f.At-f.Sent))
	}
	for _, d := range wire.Drops(link.AToB) {
		fmt.Println("frame", d.ID, "lost:", d.Cause)
	}
	// Output:
	// frame 0 after 17.304µs
	// frame 1 after 17.304µs
	// frame 2 after 17.304µs
	// frame 3 after 17.304µs
	// frame 4 after 17.304µs
	// frame 6 after 17.304µs
	// frame 7 after 17.304µs
	// frame 8 after 17.304µs
	// frame 9 after 17.304µs
	// frame 5 lost: loss
}

func ExampleParseConfig() {
	_, err := link.ParseConfig(url.Values{"los": {"1e-4"}})
	fmt.Println(err)
	// Output: link: no parameter is called "los"; did you mean "loss"?
}
