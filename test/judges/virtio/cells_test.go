package virtio

import (
	"fmt"
	"strings"
	"testing"
)

// cell is a kind of card, and the way to it.
type cell struct {
	legacy    bool // the legacy interface, and no other
	packed    bool
	pairs     int // of queues
	mergeable bool
	eventIdx  bool
	sysfs     bool // no VFIO, no IOMMU
	vectors   int  // interrupts: allVectors, 1, or 0 for the pin
}

// allVectors stands for one interrupt for each queue, and one for the configuration.
const allVectors = -1

func (c cell) String() string {
	words := []string{"modern", "split", fmt.Sprintf("%dpairs", c.pairs), "single", "flags", "vfio", "msix"}
	for i, w := range map[int]string{
		0: pick(c.legacy, "legacy"), 1: pick(c.packed, "packed"), 3: pick(c.mergeable, "mergeable"), 4: pick(c.eventIdx, "event"), 5: pick(c.sysfs, "sysfs"),
		6: map[int]string{1: "vector", 0: "pin"}[c.vectors],
	} {
		if w != "" {
			words[i] = w
		}
	}
	return strings.Join(words, "-")
}

func pick(ok bool, word string) string {
	if ok {
		return word
	}
	return ""
}

// factors are the values of a cell, one function for each, by which cells are made and compared.
var factors = []struct {
	name   string
	values int
	set    func(c *cell, v int)
}{
	{"ring", 3, func(c *cell, v int) { c.legacy, c.packed = v == 2, v == 1 }},
	{"pairs", 2, func(c *cell, v int) { c.pairs = []int{1, 4}[v] }},
	{"mergeable", 2, func(c *cell, v int) { c.mergeable = v == 1 }},
	{"event index", 2, func(c *cell, v int) { c.eventIdx = v == 1 }},
	{"vectors", 3, func(c *cell, v int) { c.vectors = []int{allVectors, 1, 0}[v] }},
}

// row is a choice of values, one for each factor.
type row []int

func (r row) cell(sysfs bool) cell {
	c := cell{sysfs: sysfs}
	for i, f := range factors {
		f.set(&c, r[i])
	}
	return c
}

// allRows is every combination.
func allRows() []row {
	rows := []row{nil}
	for _, f := range factors {
		var more []row
		for _, r := range rows {
			for v := range f.values {
				more = append(more, append(append(row{}, r...), v))
			}
		}
		rows = more
	}
	return rows
}

// pair is two values of two factors.
type pair struct{ f, v, g, w int }

func (r row) pairs() (all []pair) {
	for f := range r {
		for g := range f {
			all = append(all, pair{f, r[f], g, r[g]})
		}
	}
	return all
}

// pairwise is a few rows in which every two values of different factors meet: of all rows again and again the one with the most
// pairs that have not met yet.
func pairwise() (chosen []row) {
	met := map[pair]bool{}
	for {
		var best row
		most := 0
		for _, r := range allRows() {
			n := 0
			for _, p := range r.pairs() {
				if !met[p] {
					n++
				}
			}
			if n > most {
				best, most = r, n
			}
		}
		if most == 0 {
			return chosen
		}
		chosen = append(chosen, best)
		for _, p := range best.pairs() {
			met[p] = true
		}
	}
}

// longRows is every combination of the ring's factors, once. How it interrupts changes nothing of a ring, so the long run does not
// multiply by it: it is what the pairwise rows say, and one vector a queue where they say nothing.
func longRows() (rows []row) {
	last := len(factors) - 1
	said := map[string]int{}
	for _, r := range pairwise() {
		said[fmt.Sprint(r[:last])] = r[last]
	}
	for _, r := range allRows() {
		if r[last] == said[fmt.Sprint(r[:last])] {
			rows = append(rows, r)
		}
	}
	return rows
}

func TestPairwiseRowsMeetEveryPair(t *testing.T) {
	rows := pairwise()
	met := map[pair]bool{}
	for _, r := range rows {
		for _, p := range r.pairs() {
			met[p] = true
		}
	}
	for _, r := range allRows() {
		for _, p := range r.pairs() {
			if !met[p] {
				t.Errorf("%s %d and %s %d never meet", factors[p.f].name, p.v, factors[p.g].name, p.w)
			}
		}
	}
	if len(rows) > 12 {
		t.Errorf("%d rows: that is no choice", len(rows))
	}
	if n := len(longRows()); n > maxCards {
		t.Errorf("%d cells do not fit on one bus", n)
	}
}

// firstSlot is the slot of the first card, and maxCards how many are free from there on for cards of the matrix.
const (
	firstSlot = 2
	maxCards  = 0x1b - firstSlot + 1
)
