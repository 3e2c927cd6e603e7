package mbuf // want "the exception for mbuf/mbuf.go:Gone excuses nothing"

import (
	"bytes"
	"io"
	"slices"
)

type Buf struct{ b []byte }

type frame []byte

func Copy(dst, src []byte) int { return copy(dst, src) } // excepted

func (b *Buf) Read(p []byte) (int, error) { return copy(p, b.b), nil } // excepted

func (b *Buf) clone() *Buf {
	c := &Buf{}
	c.b = append(c.b, b.b...)       // want "append copies bytes.*in Buf.clone"
	c.b = append([]byte(nil), 1, 2) // single bytes
	copy(c.b, b.b)                  // want "copy copies bytes"
	_ = copy(frame(c.b), b.b[1:4])  // want "copy copies bytes"
	c.b = bytes.Clone(b.b)          // want "bytes.Clone copies bytes"
	c.b = slices.Clone(b.b)         // want "slices.Clone copies bytes"
	c.b = slices.Concat(b.b, b.b)   // want "slices.Concat copies bytes"
	return c
}

var initial = append([]byte{}, []byte{1}...) // want "append copies bytes.*in -"

func through(w io.Writer, r io.Reader) {
	io.Copy(w, r)                   // want "io.Copy copies bytes"
	io.ReadFull(r, make([]byte, 9)) // want "io.ReadFull copies bytes"
	var b bytes.Buffer
	b.Write(nil) // want "Buffer..Write copies bytes"
}

func addresses(h []byte, mac [6]byte, ip *[16]byte, long [64]byte) {
	copy(h, mac[:])
	copy(h, ip[:])
	copy(h, "const")
	h = append(h, mac[:]...)
	copy(h, long[:]) // want "copy copies bytes"
	copy(h, mac[1:]) // still an address
}

func others(a, b []int, s []*Buf) {
	copy(a, b)
	a = append(a, b...)
	_ = slices.Clone(s)
	func() { copy(a, b) }()
}
