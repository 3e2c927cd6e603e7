package wire

import "bare.wire/mbuf"

// SumChain sums n bytes that start off bytes into the chain of segments at
// head, whatever their lengths: odd and empty segments are in order. The first
// of the n bytes counts as the upper half of a word, wherever it lies. The
// chain stays the caller's; nothing is written. A range that reaches past the
// chain is an error.
func SumChain(head *mbuf.Buf, off, n int) (Sum, error) {
	if off < 0 || n < 0 {
		return 0, errChainRange
	}
	var a Adder
	for b := head; b != nil && n > 0; b = b.Next() {
		p := b.Bytes()
		if off >= len(p) {
			off -= len(p)
			continue
		}
		p = p[off:]
		off = 0
		p = p[:min(n, len(p))]
		a.Add(p)
		n -= len(p)
	}
	if n > 0 {
		return 0, errChainShort
	}
	return a.Sum(), nil
}

// ParseChain is Parse for a frame in several segments. All headers must be in
// the first; then l's methods take head.Bytes() as the frame.
func ParseChain(head *mbuf.Buf) (Layers, error) {
	return ParseHead(head.Bytes(), head.FrameLen())
}

// CheckL4Chain is CheckL4 for a frame in several segments, of which the first
// holds all headers, as ParseChain wants it.
func (l Layers) CheckL4Chain(head *mbuf.Buf) Verdict {
	b := head.Bytes()
	if v, done := l.checkL4Early(b); done {
		return v
	}
	sum, err := SumChain(head, l.L4, l.End-l.L4)
	if err != nil {
		return Unchecked
	}
	return verdict(sum.Add(l.PseudoSum(b)).OK())
}
