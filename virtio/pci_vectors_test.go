package virtio_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

func TestVectorsAreForQueuesAndTheLastForTheConfiguration(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	var fired []int
	if n := must[int](r)(tr.Interrupts(3, func(v int) { fired = append(fired, v) })); n != 3 || r.d.configVec != 2 {
		t.Fatalf("%d vectors, the configuration has %d", n, r.d.configVec)
	}
	for i, v := range []int{0, 1, -1} {
		must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), i, area(256, v)))
	}
	if q := r.d.queues; q[0].vector != 0 || q[1].vector != 1 || q[2].vector != spec.NoVector {
		t.Errorf("vectors %d %d %d", q[0].vector, q[1].vector, q[2].vector)
	}
	r.d.isr = 3 // is not looked at
	for v := range 3 {
		r.d.handler(v)
	}
	if fmt.Sprint(fired) != "[0 1 2]" || r.d.isr != 3 {
		t.Errorf("fired %v, interrupt status %d", fired, r.d.isr)
	}
	if n := must[int](r)(tr.Interrupts(9, func(int) {})); n != 4 || r.d.configVec != 3 {
		t.Errorf("%d vectors of 4", n)
	}
	_, err := tr.EnableQueue(context.Background(), 2, area(256, 4))
	r.fails(err) // enabled already
	if _, err := tr.Interrupts(0, nil); err != nil || r.d.handler != nil {
		t.Errorf("off: %v", err)
	}
}

func TestVectorThatThereIsNotIsRefused(t *testing.T) {
	r := newTransportRig(t, spec.PCIModernNet)
	tr := r.open(virtio.NewModern)
	must[int](r)(tr.Interrupts(2, func(int) {}))
	_, err := tr.EnableQueue(context.Background(), 0, area(256, 2))
	r.fails(err, "vector 2")
}

func TestRefusedVectorIsSharedAndTold(t *testing.T) {
	for what, c := range map[string]struct {
		refused []uint16
		vectors int // that Interrupts returns for 4
		config  uint16
		queue1  uint16
		fires   string // when the vector of queue 1 fires
		told    bool
	}{
		"none":                {nil, 4, 3, 1, "[1]", false},
		"the queue's":         {[]uint16{1}, 4, 3, 3, "[3 1]", true},
		"the configuration's": {[]uint16{3}, 1, 0, 0, "[0]", true},
		"all but the last":    {[]uint16{0, 1, 2}, 4, 3, 3, "[3 1]", true},
		"every one":           {[]uint16{0, 1, 2, 3}, 1, spec.NoVector, spec.NoVector, "", true},
	} {
		t.Run(what, func(t *testing.T) {
			r := newTransportRig(t, spec.PCIModernNet)
			for _, v := range c.refused {
				r.d.noVectors[v] = true
			}
			tr := r.open(virtio.NewModern)
			var fired []int
			n := must[int](r)(tr.Interrupts(4, func(v int) { fired = append(fired, v) }))
			if n != c.vectors || r.d.configVec != c.config {
				t.Errorf("%d vectors, %#x for the configuration", n, r.d.configVec)
			}
			must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 1, area(256, min(1, n-1))))
			if got := r.d.queues[1].vector; got != c.queue1 {
				t.Errorf("queue 1 has vector %#x, want %#x", got, c.queue1)
			}
			if c.fires != "" {
				r.d.handler(int(c.queue1))
				if fmt.Sprint(fired) != c.fires {
					t.Errorf("fired %v, want %s", fired, c.fires)
				}
			}
			must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 2, area(256, min(1, n-1)))) // the same vector
			if fired = nil; c.fires != "" {
				r.d.handler(int(c.queue1))
				if fmt.Sprint(fired) != c.fires {
					t.Errorf("with two queues on it fired %v, want %s", fired, c.fires)
				}
			}
			if told := strings.Contains(r.log.String(), "refuses"); told != c.told {
				t.Errorf("told: %q", r.log.String())
			}
		})
	}
}

func TestInterruptOfSomebodyElseOnTheLineIsNotOurs(t *testing.T) {
	for _, open := range []bool{false, true} {
		r := newTransportRig(t, spec.PCITransitionalNet)
		r.d.msix = 0
		if open {
			r.d.noCapabilities()
		}
		tr := r.open(virtio.NewPCI)
		fired := 0
		if n := must[int](r)(tr.Interrupts(3, func(v int) { fired += 1 + v })); n != 1 {
			t.Errorf("%d vectors without MSI-X", n)
		}
		for _, isr := range []uint8{0, spec.ISRQueue, spec.ISRConfig, 0} {
			r.d.isr = isr
			r.d.handler(0)
			if r.d.isr != 0 {
				t.Error("the interrupt status was not read: the line stays")
			}
		}
		if fired != 2 {
			t.Errorf("fired %d times", fired)
		}
		a := area(256, 0)
		if tr.Legacy() {
			a = legacyArea(t, 256, 0x1000)
			a.Vector = 0
		}
		must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 0, a))
		if got := r.d.queues[0].vector; got != spec.NoVector {
			t.Errorf("without MSI-X the queue was given vector %d", got)
		}
	}
}

func TestLegacyQueueHasItsVector(t *testing.T) {
	r := newTransportRig(t, spec.PCITransitionalNet)
	tr := r.open(virtio.NewLegacy)
	must[int](r)(tr.Interrupts(3, func(int) {}))
	a := legacyArea(t, 256, 0x1000)
	a.Vector = 1
	must[virtio.Doorbell](r)(tr.EnableQueue(context.Background(), 1, a))
	if got := r.d.queues[1].vector; got != 1 || r.d.configVec != 2 {
		t.Errorf("vector %#x, configuration %#x", got, r.d.configVec)
	}
}
