package ixgbe

// PartialSegs is how many segments of an unfinished frame receive queue q holds.
func (p *Port) PartialSegs(q int) int {
	if b := p.rx[q].partial; b != nil {
		return b.Segs()
	}
	return 0
}
