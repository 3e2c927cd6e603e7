package virtio_test

import (
	"testing"

	"bare.wire/nic/nictest"
)

func openBench(t testing.TB, seed uint64) *nictest.Bench {
	cfg := rigConfig{}
	cfg.device.Seed = seed
	return newRig(t, cfg).bench()
}

func TestConformance(t *testing.T) { nictest.TestPort(t, openBench) }
