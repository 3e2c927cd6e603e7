package mbuf

import "sync/atomic"

// Account counts the storage that somebody holds, a connection's reader for instance, in bytes of capacity: a one-byte
// segment in a buffer of 2240 costs 2240. A block is charged once, however many views it has, and credited when the last
// of them is freed, wherever that happens.
type Account struct {
	bytes     atomic.Int64
	threshold int64
	wake      func()
}

// NewAccount returns an account at zero. When credits take it from above threshold to threshold or below, wake is called
// once, by whoever freed the buffer: it must not block and must not free buffers itself. wake may be nil.
func NewAccount(threshold int64, wake func()) *Account {
	return &Account{threshold: threshold, wake: wake}
}

// Bytes is the capacity charged now.
func (a *Account) Bytes() int64 { return a.bytes.Load() }

func (a *Account) credit(n int64) {
	after := a.bytes.Add(-n)
	if a.wake != nil && after <= a.threshold && after+n > a.threshold {
		a.wake()
	}
}

// Charge charges the storage of the frame that b begins to a. Storage that is charged to a already is left as it is; what
// was charged to another account moves; a == nil ends the charge.
func (b *Buf) Charge(a *Account) {
	b.alive("Charge")
	for ; b != nil; b = b.next {
		blk := b.blk
		old := blk.acct.Swap(a)
		if old == a {
			continue
		}
		if a != nil {
			a.bytes.Add(int64(blk.cap))
		}
		if old != nil {
			old.credit(int64(blk.cap))
			continue
		}
		blk.state.Or(stateCharged)
	}
}

// credit ends the charge when the last view has gone.
func (blk *Block) credit() {
	if a := blk.acct.Swap(nil); a != nil {
		a.credit(int64(blk.cap))
	}
}
