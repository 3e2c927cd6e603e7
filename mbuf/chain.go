package mbuf

import (
	"fmt"
	"io"
	"iter"
)

// Chain is a sequence of bytes in buffers: a stream's queue, a message. It is a value with one owner; copying a Chain and
// using both copies is an error. The zero Chain is empty.
//
// Chain is an io.Reader and an io.ByteReader, which take bytes out of it, and an io.WriterTo, which hands its segments to
// a writer one by one, uncopied.
type Chain struct {
	head, tail *Buf
	n          int
}

// Copy sites of this package.
var siteChainRead = Site{"mbuf.Chain.Read"}

// Len is the number of bytes.
func (q *Chain) Len() int { return q.n }

// Empty says whether there is nothing in the chain, not even an empty segment.
func (q *Chain) Empty() bool { return q.head == nil }

// Head is the first segment, still the chain's.
func (q *Chain) Head() *Buf { return q.head }

// Append puts the frame that b begins, all its segments, at the end. The chain owns it from then on.
func (q *Chain) Append(b *Buf) {
	if b == nil {
		return
	}
	b.alive("Chain.Append")
	if q.head == nil {
		q.head = b
	} else {
		q.tail.next = b
	}
	for q.n += int(b.len); b.next != nil; q.n += int(b.len) {
		b = b.next
	}
	q.tail = b
}

// AppendChain moves everything in o to the end of q. o is empty afterwards.
func (q *Chain) AppendChain(o *Chain) {
	if o.head == nil || o == q {
		return
	}
	if q.head == nil {
		q.head = o.head
	} else {
		q.tail.next = o.head
	}
	q.tail = o.tail
	q.n += o.n
	*o = Chain{}
}

// Take returns the segments as one frame, owned by the caller, and leaves the chain empty. nil when it is empty.
func (q *Chain) Take() *Buf {
	b := q.head
	*q = Chain{}
	return b
}

// Split cuts the chain after n bytes: q keeps what follows, the first n bytes are returned. A block that the cut goes
// through is shared by reference; the view for it comes from c. On an error the chain is whole.
func (q *Chain) Split(c *Cache, n int) (Chain, error) {
	if n < 0 || n > q.n {
		return Chain{}, fmt.Errorf("split a chain of %d bytes at %d: %w", q.n, n, ErrNoRoom)
	}
	if n == q.n {
		front := *q
		*q = Chain{}
		return front, nil
	}
	if n == 0 {
		return Chain{}, nil
	}
	front := Chain{head: q.head, n: n}
	b, left := q.head, n
	for left > int(b.len) {
		left -= int(b.len)
		b = b.next
	}
	rest := b.next
	if left < int(b.len) {
		v := c.view(b)
		if v == nil {
			return Chain{}, fmt.Errorf("split a chain: no view: %w", ErrNoBuffer)
		}
		v.off += uint32(left)
		v.len -= uint32(left)
		b.len = uint32(left)
		v.next = rest
		rest = v
		if q.tail == b {
			q.tail = v
		}
	}
	b.next = nil
	front.tail = b
	q.head = rest
	q.n -= n
	return front, nil
}

// TrimFront frees the first n bytes.
func (q *Chain) TrimFront(n int) error {
	if n < 0 || n > q.n {
		return fmt.Errorf("trim %d bytes of a chain of %d: %w", n, q.n, ErrNoRoom)
	}
	q.drop(n)
	return nil
}

// drop takes n bytes off the front, n <= q.n, and frees emptied segments.
func (q *Chain) drop(n int) {
	q.n -= n
	for b := q.head; b != nil && n >= int(b.len); b = q.head {
		n -= int(b.len)
		q.head = b.next
		b.next = nil
		b.Free()
	}
	if q.head == nil {
		q.tail = nil
		return
	}
	q.head.off += uint32(n)
	q.head.len -= uint32(n)
}

// TrimBack frees the last n bytes.
func (q *Chain) TrimBack(n int) error {
	if n < 0 || n > q.n {
		return fmt.Errorf("trim %d bytes of a chain of %d: %w", n, q.n, ErrNoRoom)
	}
	q.n -= n
	if q.n == 0 {
		q.head.freeAll()
		*q = Chain{}
		return nil
	}
	b, left := q.head, q.n
	for left > int(b.len) {
		left -= int(b.len)
		b = b.next
	}
	b.len = uint32(left)
	rest := b.next
	b.next = nil
	q.tail = b
	rest.freeAll()
	return nil
}

func (b *Buf) freeAll() {
	if b != nil {
		b.Free()
	}
}

// Reserve appends n bytes of writable room, in one piece, and returns it: in the last segment when that is writable and
// has the room, else in a fresh buffer from c. n is at most the pool's Size. On an error the chain is unchanged.
func (q *Chain) Reserve(c *Cache, n int) ([]byte, error) {
	if q.tail != nil && n >= 0 && n <= q.tail.Tailroom() && q.tail.Writable() {
		room, err := q.tail.Reserve(n)
		if err == nil {
			q.n += n
		}
		return room, err
	}
	b := c.Alloc()
	if b == nil {
		return nil, fmt.Errorf("reserve %d bytes: %w", n, ErrNoBuffer)
	}
	room, err := b.Reserve(n)
	if err != nil {
		c.Free(b)
		return nil, err
	}
	q.Append(b)
	return room, nil
}

// Clone returns a chain of further views on the same bytes. They come from c; ErrNoBuffer when there are not enough.
func (q *Chain) Clone(c *Cache) (Chain, error) {
	if q.head == nil {
		return Chain{}, nil
	}
	v := q.head.Clone(c)
	if v == nil {
		return Chain{}, fmt.Errorf("clone a chain: no view: %w", ErrNoBuffer)
	}
	return Chain{head: v, tail: v.Last(), n: q.n}, nil
}

// Pieces yields the bytes of each segment, in order, empty ones left out. The slices are good until the chain changes.
func (q *Chain) Pieces() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for b := q.head; b != nil; b = b.next {
			if b.len > 0 && !yield(b.Bytes()) {
				return
			}
		}
	}
}

// Read copies bytes out of the chain and frees what has been read (copy site "mbuf.Chain.Read").
func (q *Chain) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if q.n == 0 {
		q.Free()
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && q.n > 0 {
		k := Copy(q.head.blk.pool, &siteChainRead, p[n:], q.head.Bytes())
		q.drop(k)
		n += k
	}
	return n, nil
}

// ReadByte implements io.ByteReader.
func (q *Chain) ReadByte() (byte, error) {
	var p [1]byte
	if _, err := q.Read(p[:]); err != nil {
		return 0, err
	}
	return p[0], nil
}

// WriteTo hands the segments to w and frees what w has taken. What w did not take stays in the chain.
func (q *Chain) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for q.n > 0 {
		for q.head.len == 0 {
			q.drop(0)
		}
		p := q.head.Bytes()
		n, err := w.Write(p)
		if n < 0 || n > len(p) {
			return total, fmt.Errorf("write a chain: the writer says %d of %d bytes", n, len(p))
		}
		q.drop(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
		if n < len(p) {
			return total, io.ErrShortWrite
		}
	}
	q.Free()
	return total, nil
}

// Free gives back every segment. The chain is empty afterwards.
func (q *Chain) Free() {
	q.head.freeAll()
	*q = Chain{}
}
