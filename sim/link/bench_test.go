package link_test

import (
	"testing"
	"time"

	"bare.wire/sim/link"
)

// BenchmarkCross is one frame sent and one received at 10 Gb/s, with few or very many frames under way.
func BenchmarkCross(b *testing.B) {
	for name, cfg := range map[string]link.Config{
		"perfect":     {},
		"delay=2us":   {Rate: 10e9, Delay: 2 * time.Microsecond},
		"delay=10ms":  {Rate: 10e9, Delay: 10 * time.Millisecond},
		"jitter=10ms": {Rate: 10e9, Jitter: 10 * time.Millisecond, Overtake: true},
		"lossy":       {Rate: 10e9, Queue: 512, Delay: 2 * time.Microsecond, Loss: 1e-3, Reorder: 1e-3, Duplicate: 1e-3, Corrupt: 1e-3},
	} {
		b.Run(name, func(b *testing.B) {
			w := newWire(b, cfg)
			data := make([]byte, 60)
			now := int64(0)
			one := func() {
				w.A().Transmit(data, now)
				now += 68
				for {
					if at, ok := w.B().Next(); !ok || at > now {
						break
					}
					w.B().Receive(now)
				}
			}
			for range 300_000 {
				one()
			}
			b.ReportAllocs()
			for b.Loop() {
				one()
			}
		})
	}
}
