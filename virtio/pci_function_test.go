package virtio_test

import (
	"errors"
	"strings"
	"testing"

	"bare.wire/mbuf"
	"bare.wire/nic"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio/spec"
)

// exchange sends frames both ways between two ports that are started, and says how many arrived.
func exchange(r *rig, frames int) (arrived int) {
	r.Helper()
	for i := range r.ports {
		cache := r.pool(mbuf.Config{Name: "exchange"}).NewCache()
		for range frames {
			b := r.frame(cache, r.ports[1-i], 100, 1)
			if r.ports[i].Tx(0).Send([]*mbuf.Buf{b}) != 1 {
				r.Fatal("the ring is full")
			}
			r.settle()
			arrived += r.drain(1-i, 0)
		}
		r.ports[i].Tx(0).Reclaim()
		cache.Close()
	}
	return arrived
}

func TestFunctionsOfEveryLayoutWork(t *testing.T) {
	for what, c := range map[string]struct {
		function virtionet.FunctionConfig
		legacy   bool
		faults   virtionet.Faults
		not      spec.Features
	}{
		"modern":                    {},
		"transitional, modern":      {function: virtionet.FunctionConfig{Kind: virtionet.Transitional}},
		"transitional, legacy":      {function: virtionet.FunctionConfig{Kind: virtionet.Transitional}, legacy: true},
		"legacy":                    {function: virtionet.FunctionConfig{Kind: virtionet.Legacy}, legacy: true},
		"legacy, no MSI-X":          {function: virtionet.FunctionConfig{Kind: virtionet.Legacy, NoMSIX: true}, legacy: true},
		"no MSI-X":                  {function: virtionet.FunctionConfig{NoMSIX: true}},
		"one vector":                {function: virtionet.FunctionConfig{Vectors: 1}},
		"one bell":                  {function: virtionet.FunctionConfig{Multiplier: -1}},
		"bells far apart":           {function: virtionet.FunctionConfig{Multiplier: 1024}},
		"bells close together":      {function: virtionet.FunctionConfig{Multiplier: 2}, not: spec.FeatureNotificationData},
		"decoys first":              {function: virtionet.FunctionConfig{Layout: virtionet.Layout{Decoys: true}}},
		"vectors refused":           {faults: virtionet.Faults{VectorsRefused: true}},
		"vectors refused, legacy":   {function: virtionet.FunctionConfig{Kind: virtionet.Legacy}, legacy: true, faults: virtionet.Faults{VectorsRefused: true}},
		"a slow reset":              {faults: virtionet.Faults{ResetReads: 100}},
		"a changing configuration":  {faults: virtionet.Faults{Churn: 5}},
		"index in the notification": {not: spec.FeatureNotifConfigData},
		"number in the queue":       {not: spec.FeatureNotificationData},
	} {
		t.Run(what, func(t *testing.T) {
			cfg := rigConfig{pci: true, function: c.function, legacy: c.legacy, faults: [2]virtionet.Faults{c.faults, c.faults}}
			cfg.options.Features.Not = c.not
			r := newRig(t, cfg)
			defer r.end()
			for range 3 { // stopped and started again
				r.start(nic.Config{})
				if got := exchange(r, 5); got != 10 {
					t.Errorf("%d frames of 10 arrived", got)
				}
				for _, p := range r.ports {
					if err := p.Stop(); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func TestFunctionsThatCannotBeDrivenSayWhy(t *testing.T) {
	for what, c := range map[string]struct {
		layout virtionet.Layout
		faults virtionet.Faults
		words  string
	}{
		"common beyond":           {virtionet.Layout{CommonBeyond: true}, virtionet.Faults{}, "common configuration"},
		"bells beyond":            {virtionet.Layout{NotifyBeyond: true}, virtionet.Faults{}, "notification"},
		"common too short":        {virtionet.Layout{CommonShort: true}, virtionet.Faults{}, "common configuration"},
		"no device configuration": {virtionet.Layout{NoDevice: true}, virtionet.Faults{}, "0 bytes"},
		"a short one":             {virtionet.Layout{ShortDevice: true}, virtionet.Faults{}, "6 bytes"},
		"a list without an end":   {virtionet.Layout{Loop: true}, virtionet.Faults{}, ""}, // all that is needed comes before
		"an odd multiplier":       {virtionet.Layout{OddMultiplier: true}, virtionet.Faults{}, "multiplier is 3"},
		"no capabilities":         {virtionet.Layout{NoCaps: true}, virtionet.Faults{}, "there is none"},
		"a reset without an end":  {virtionet.Layout{}, virtionet.Faults{ResetStuck: true}, "device status"},
		"never the same twice":    {virtionet.Layout{}, virtionet.Faults{Churn: -1}, "changed"},
		"queues of any size":      {virtionet.Layout{}, virtionet.Faults{QueueMax: 65535}, "65535 descriptors"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newBareRig(t, rigConfig{faults: [2]virtionet.Faults{c.faults, c.faults}})
			_, err := r.open(0, rigConfig{pci: true, function: virtionet.FunctionConfig{Layout: c.layout}})
			if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "sim:a")) {
				t.Errorf("open: %v; want %q in it, and the device's name", err, c.words)
			}
			if errors.Is(err, nic.ErrGone) {
				t.Errorf("%v: it is there", err)
			}
		})
	}
}
