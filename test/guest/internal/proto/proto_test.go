package proto

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func reader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

func TestFramesComeBack(t *testing.T) {
	var b bytes.Buffer
	for _, p := range []string{"", "x", strings.Repeat("long ", 10_000)} {
		if err := Write(&b, Output, []byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	r := reader(b.Bytes())
	for _, want := range []string{"", "x", strings.Repeat("long ", 10_000)} {
		k, p, err := Read(r)
		if err != nil || k != Output || string(p) != want {
			t.Fatalf("got %q, %d bytes, %v; want %d bytes", k, len(p), err, len(want))
		}
	}
	if _, _, err := Read(r); err != io.EOF {
		t.Errorf("at the end: %v, want io.EOF itself", err)
	}
}

func TestFrameThatIsTooLongIsRefused(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, Tar, make([]byte, MaxPayload+1)); err == nil || b.Len() != 0 {
		t.Errorf("got %v, and %d bytes were written", err, b.Len())
	}
	if _, _, err := Read(reader([]byte{byte(Tar), 0xff, 0xff, 0xff, 0xff})); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("reading: %v", err)
	}
}

func TestFrameThatIsCutOff(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, Log, []byte("cut off")); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < b.Len(); n++ {
		if _, _, err := Read(reader(b.Bytes()[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

func TestNumberOfAQuestion(t *testing.T) {
	n, text, ok := Number(Numbered(1<<63, "what?"))
	if n != 1<<63 || text != "what?" || !ok {
		t.Errorf("got %d, %q, %v", n, text, ok)
	}
	if _, _, ok := Number(make([]byte, 7)); ok {
		t.Error("seven bytes were taken for a question")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{'O', 0, 0, 0, 1, 'x'})
	f.Add([]byte{'T', 0, 0x10, 0, 1})
	f.Add([]byte{'E', 0, 0, 0, 0, 'A', 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, read := reader(b), 0
		for {
			k, p, err := Read(r)
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := Write(&again, k, p); err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(b[read:], again.Bytes()) {
				t.Fatalf("frame at byte %d: %q was read, which is written %q", read, p, again.Bytes())
			}
			read += again.Len()
		}
	})
}
