package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// result is what a front end has measured.
type result struct {
	frames, bytes         uint64 // that it has moved, without FCS
	peerFrames, peerBytes uint64 // that the back end has counted
	rounds                []float64
}

// parseResult finds the line "result …" in the output of a front end.
func parseResult(out string) (result, error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "result" {
			continue
		}
		var r result
		counts := []*uint64{&r.frames, &r.bytes, &r.peerFrames, &r.peerBytes}
		if len(words) < 2+len(counts) {
			return r, fmt.Errorf("the front end printed %d words of a result: want the counts and at least one round", len(words))
		}
		var err error
		for i, c := range counts {
			if *c, err = strconv.ParseUint(words[1+i], 10, 64); err != nil {
				return r, fmt.Errorf("the front end's result: %w", err)
			}
		}
		for _, w := range words[1+len(counts):] {
			v, err := strconv.ParseFloat(w, 64)
			if err != nil {
				return r, fmt.Errorf("the front end's result: %w", err)
			}
			r.rounds = append(r.rounds, v)
		}
		return r, nil
	}
	return result{}, fmt.Errorf("the front end printed no result")
}

// check says what does not add up.
func (r result) check(want uint64) error {
	switch {
	case r.frames != want:
		return fmt.Errorf("%d of %d frames went through the front end", r.frames, want)
	case r.peerFrames != r.frames || r.peerBytes != r.bytes || r.bytes != r.frames*frameLen:
		return fmt.Errorf("the front end counted %d frames of %d bytes, the back end %d of %d, and all are of %d", r.frames, r.bytes, r.peerFrames, r.peerBytes, frameLen)
	}
	return nil
}

// perFrame is the median, over groups of rounds, of nanoseconds per frame.
func (r result) perFrame(framesPerRound int) float64 {
	group := min(roundsPerValue, len(r.rounds))
	if group == 0 {
		return 0
	}
	var values []float64
	for g := range slices.Chunk(r.rounds, group) {
		if len(g) < group {
			break
		}
		sum := 0.0
		for _, v := range g {
			sum += v
		}
		values = append(values, sum/float64(group*framesPerRound))
	}
	return median(values)
}

// median of an odd number of values is the one in the middle, of an even number the lower one; 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}

// spread is "median (least to most)", with so many digits.
func spread(v []float64, digits int) string {
	switch len(v) {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf("%.*f", digits, v[0])
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, median(v), digits, slices.Min(v), digits, slices.Max(v))
}

// ratios divides run by run: what disturbs the machine for a while disturbs both sides of a run.
func ratios(ours, theirs []float64) []float64 {
	var r []float64
	for i := range min(len(ours), len(theirs)) {
		if theirs[i] > 0 {
			r = append(r, ours[i]/theirs[i])
		}
	}
	return r
}
