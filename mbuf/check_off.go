//go:build !mbufcheck

package mbuf

// checking says whether the sanitizer is built in.
const checking = false

// Checking says whether the sanitizer is built in.
const Checking = checking

type (
	checkState struct{}
	checkTrace struct{}
)

func (b *Buf) alive(string) {}
func (b *Buf) dying()       {}
func (b *Buf) born(bool)    {}

// isFirst says whether b is the view that its block embeds.
func (b *Buf) isFirst() bool { return b == &b.blk.first }

func (blk *Block) freshView(uint32) *Buf { return nil }
func (blk *Block) poison()               {}
func (p *Pool) leaks() string            { return "" }

// Transfer notes that owner has the frame now. Without the tag mbufcheck it does nothing.
func (b *Buf) Transfer(owner string) {}

// Seal notes what is in the frame as it is handed to a card, and Unseal reports if that has changed when it comes back.
// Without the tag mbufcheck they do nothing.
func (b *Buf) Seal() {}

// Unseal ends what Seal began.
func (b *Buf) Unseal() {}
