package lint

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// The `want` comments in testdata say what each analyzer has to find; anything more or less fails.

func TestCopiesOfPayloadAreFound(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), PayloadCopy, "bare.wire/mbuf", "bare.wire/sim")
}

func TestWallClockIsFound(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), WallClock, "bare.wire/wall", "bare.wire/clock", "bare.wire/cmd/clocked")
}

func TestPrintingIsFound(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), NoLog, "bare.wire/prints", "bare.wire/cmd/prints")
}

func TestPanicsAreFound(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), NoPanic, "bare.wire/panics", "bare.wire/cmd/panics")
}
