//go:build race

package hugepage

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// child runs one test of this binary again, with a role.
func child(test, role string) (out string, err error) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), "HUGEPAGE_TEST_CHILD="+role, "GORACE=exitcode=66 halt_on_error=1")
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// raceConfigs are the kinds of memory that the detector must see.
func raceConfigs() []Config {
	return []Config{ordinary(1 << 20), {Size: Page2M, Node: AnyNode}}
}

// Two goroutines write one byte of packet memory with nothing between them:
// the process that does it must die of the report.
func TestRaceOnPacketMemoryIsReported(t *testing.T) {
	if os.Getenv("HUGEPAGE_TEST_CHILD") == "racy" {
		for _, cfg := range raceConfigs() {
			r, err := Alloc(cfg)
			require.NoError(t, err)
			var both sync.WaitGroup
			for i := range 2 {
				both.Go(func() { r.Bytes()[100] = byte(i) })
			}
			both.Wait()
		}
		return
	}
	out, err := child(t.Name(), "racy")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	assert.Equal(t, 66, exit.ExitCode(), "%s", out)
	assert.Contains(t, out, "WARNING: DATA RACE")
}

// Packet memory that is handed over through a word in Go memory is no race.
func TestHandOverOfPacketMemoryIsNoRace(t *testing.T) {
	for _, cfg := range raceConfigs() {
		r, err := Alloc(cfg)
		require.NoError(t, err)
		turn := make(chan struct{})
		go func() {
			r.Bytes()[100] = 1
			close(turn)
		}()
		<-turn
		r.Bytes()[100]++
		assert.Equal(t, byte(2), r.Bytes()[100])
		require.NoError(t, r.Close())
	}
}

// The heap gets ordinary memory back, whether Close was called or forgotten.
func TestHeapGetsItsMemoryBack(t *testing.T) {
	cfg := ordinary(4 << 20)
	cfg.Name = "forgotten-test"
	func() {
		r, err := Alloc(cfg)
		require.NoError(t, err)
		r.Bytes()[0] = 1
	}()
	for i := 0; mapsOf(t, cfg.Name) > 0; i++ {
		require.Less(t, i, 1000, "the region was never unmapped")
		runtime.GC()
		runtime.Gosched() // to the goroutine that runs finalizers
	}
}

// A slice into a dropped region keeps its memory as it is.
func TestSliceOutlivesTheDroppedRegion(t *testing.T) {
	cfg := ordinary(4 << 20)
	cfg.Name = "kept-test"
	var kept []byte
	func() {
		r, err := Alloc(cfg)
		require.NoError(t, err)
		r.Bytes()[4000] = 77
		kept = r.Bytes()[4000:4001]
	}()
	for range 20 {
		runtime.GC()
		runtime.Gosched()
	}
	assert.Equal(t, byte(77), kept[0])
	assert.Equal(t, 1, mapsOf(t, cfg.Name))
}
