package sig

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"
)

func Example() {
	frame := make([]byte, 60)
	Put(frame, Signature{Run: 7, Stream: 1, Seq: 42, Sent: 1000})
	s, ok := Parse(frame)
	fmt.Println(ok, s.Run, s.Stream, s.Seq, s.Sent)
	// Output: true 7 1 42 1000
}

func TestLayoutIsBigEndianAndFixed(t *testing.T) {
	b := make([]byte, Size)
	Put(b, Signature{Run: 0x01, Stream: 0x02, Seq: 0x030405060708, Sent: 0x1112131415161718})
	want, _ := hex.DecodeString("b1e70102030405060708" + "1112131415161718")
	if !bytes.Equal(b, want) {
		t.Errorf("%x, want %x", b, want)
	}
}

func TestSequenceIsCutTo48Bits(t *testing.T) {
	b := make([]byte, Size)
	Put(b, Signature{Run: 3, Stream: 4, Seq: 1<<48 + 5})
	if s, ok := Parse(b); !ok || s.Run != 3 || s.Stream != 4 || s.Seq != 5 {
		t.Errorf("%+v %v", s, ok)
	}
}

func TestMarkIsReadFromTheEndAfterHeadersGrew(t *testing.T) {
	frame := make([]byte, 60)
	want := Signature{Run: 9, Stream: 8, Seq: 7, Sent: -6}
	Put(frame, want)
	for _, grown := range []int{0, 4, 8, 50} {
		if got, ok := Parse(append(make([]byte, grown), frame...)); !ok || got != want {
			t.Errorf("grown by %d: %+v %v", grown, got, ok)
		}
	}
	for n := range Size {
		if _, ok := Parse(frame[60-n:]); ok {
			t.Errorf("%d bytes gave a mark", n)
		}
	}
}

// A flipped bit of magic, run or stream makes another frame of it; one of sequence or time changes exactly that field.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	want := Signature{Run: 0x5a, Stream: 3, Seq: 123456789, Sent: 987654321}
	for bit := range Size * 8 {
		b := make([]byte, Size)
		Put(b, want)
		b[bit/8] ^= 0x80 >> (bit % 8)
		got, ok := Parse(b)
		switch {
		case bit < 16:
			if ok {
				t.Errorf("bit %d of the magic: still a mark", bit)
			}
		case bit < 32:
			if ok && got.Run == want.Run && got.Stream == want.Stream {
				t.Errorf("bit %d: still ours", bit)
			}
		case bit < 80:
			if !ok || got.Seq == want.Seq || got.Sent != want.Sent {
				t.Errorf("bit %d of the sequence: %+v", bit, got)
			}
		default:
			if !ok || got.Seq != want.Seq || got.Sent == want.Sent {
				t.Errorf("bit %d of the time: %+v", bit, got)
			}
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	b := make([]byte, 60)
	if n := testing.AllocsPerRun(100, func() { Put(b, Signature{Seq: 1}); Parse(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(nil))
	b := make([]byte, 60)
	Put(b, Signature{Run: 1, Seq: SeqMask, Sent: -1})
	f.Add(b)
	f.Fuzz(func(t *testing.T, frame []byte) {
		s, ok := Parse(frame)
		if !ok {
			return
		}
		again := make([]byte, Size)
		Put(again, s)
		if !bytes.Equal(again, frame[len(frame)-Size:]) {
			t.Fatalf("%x reads as %+v and writes %x", frame, s, again)
		}
	})
}

func BenchmarkPutParse(b *testing.B) {
	frame := make([]byte, 60)
	for i := 0; b.Loop(); i++ {
		Put(frame, Signature{Seq: uint64(i)})
		Parse(frame)
	}
}
