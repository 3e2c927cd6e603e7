// Package mbuf holds the buffers that card, driver, stack and application share, so that payload need not be copied on
// its way between them.
//
// # Block and Buf
//
// A [Block] is storage: bytes that a card can reach, at one bus address that is valid for every card of the process, with
// a count of the views on it. A [Buf] is a view: which bytes of a block are meant, what follows, and what is known of the
// frame. A Buf has exactly one owner and no count; the owner frees it, once, or hands it on. Each block embeds its first
// view, so allocating a buffer touches no second free list; further views on the same bytes come from [Buf.Clone] and
// [Chain.Split].
//
//	         Buf ─next─▶ Buf ─next─▶ nil          one frame, head first
//	          │           │
//	        Block       Block                     reference counts, bus addresses
//	          │           │
//	[headroom|frame… ][…frame     ]               huge pages, written and read by the card
//
// A block may be written only while its count is 1 ([Buf.Writable]).
//
// # Pool and Cache
//
// A [Pool] owns a region of memory cut into blocks. Workers take from it and give back through a [Cache] of their own,
// which works on magazines: two small stacks of blocks that are exchanged for full or empty ones with the pool, so that
// the lock is taken once in a magazine and not once in a buffer (Bonwick and Adams, "Magazines and Vmem", USENIX 2001).
// [Buf.Free] works from anywhere; it pushes to a list that the pool collects.
//
// Blocks are handed out by [Level]: what is kept for receive rings and for control frames is not given to ordinary
// allocations, so an exhausted pool slows everybody and stops nobody.
//
// # Copies
//
// Payload is copied by [Copy] only, which counts bytes by site; a run that claims to copy nothing shows zeros.
//
// # The sanitizer
//
// Built with the tag mbufcheck, every allocation hands out a view that is never used again, so a stale pointer is caught
// even after its storage has been reused; freed storage is poisoned and the poison is looked at; what a card sends is
// summed when it is handed over and again when it comes back; and a pool that closes with buffers missing says where they
// were allocated.
package mbuf
