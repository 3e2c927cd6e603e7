//go:build guest

package dpdk

// check is something that testpmd and the host find out together about a card. It leaves the ports as it found them.
type check struct {
	name string
	run  func(b *bench) error
}

var checks = []check{
	{"io forwarding", checkIO},
	{"mac forwarding", checkMAC},
}

func checkIO(b *bench) error {
	_, err := b.forward("io", func() error {
		_, err := b.exchange(exchange{Traffic: "same", Count: 128, Seed: 1})
		return err
	})
	return err
}

func checkMAC(b *bench) error {
	_, err := b.forward("mac", func() error {
		_, err := b.exchange(exchange{Traffic: "forwarded", Count: 64, Seed: 2})
		return err
	})
	return err
}
