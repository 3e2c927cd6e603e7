// Package proto is what a guest and its host say to each other: frames on virtio-serial ports, and the description of its work that
// a guest finds in its first file system.
//
// The port of results carries, from the guest, Hello (after each start), Output and Log as they come, Kernel (its messages), Tar
// (pieces of an archive of /out) and End; the host answers Hello with Welcome, and End and Restart with Ack, so that the guest does
// not switch itself off while something is still on its way. The port of questions carries Ask and Monitor one way and Answer or
// Refusal the other; all begin with the number of the question, so that an answer that nobody waits for any more is known.
package proto

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Kind says what a frame is.
type Kind byte

// The kinds of frames.
const (
	Hello   Kind = 'H' // guest: ready; the payload is its kernel's release
	Welcome Kind = 'W' // host: the number of this start, from 1, in decimal
	Output  Kind = 'O' // guest: what the command printed
	Log     Kind = 'L' // guest: a line of its init
	Kernel  Kind = 'K' // guest: messages of the kernel
	Tar     Kind = 'T' // guest: a piece of the archive of /out
	Restart Kind = 'B' // guest: about to boot again
	End     Kind = 'E' // guest: the command has ended; the payload is an Ending
	Ack     Kind = 'A' // host: seen

	Ask     Kind = 'Q' // guest: a question: its number (8 bytes, big endian) and its text
	Answer  Kind = 'R' // host: the number and the answer
	Refusal Kind = 'X' // host: the number and why there is no answer
	Monitor Kind = 'M' // guest: a number and a command for the machine's monitor; an Answer or a Refusal follows
)

// MaxPayload is the most bytes that a frame carries.
const MaxPayload = 1 << 20

const headerLen = 5 // kind, length (32 bits, big endian)

// Write writes a frame with one call of w.Write.
func Write(w io.Writer, k Kind, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("a frame %q of %d bytes: at most %d fit", k, len(payload), MaxPayload)
	}
	b := make([]byte, headerLen, headerLen+len(payload))
	b[0] = byte(k)
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	if _, err := w.Write(append(b, payload...)); err != nil {
		return fmt.Errorf("writing a frame %q: %w", k, err)
	}
	return nil
}

// Read reads a frame. At the end between two frames the error is io.EOF alone.
func Read(r *bufio.Reader) (Kind, []byte, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if err == io.EOF { // not wrapped: the end is no fault
			return 0, nil, err
		}
		return 0, nil, fmt.Errorf("the head of a frame: %w", err)
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n > MaxPayload {
		return 0, nil, fmt.Errorf("a frame %q that says it has %d bytes: at most %d fit", h[0], n, MaxPayload)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return 0, nil, fmt.Errorf("a frame %q of %d bytes: %w", h[0], n, io.ErrUnexpectedEOF)
	}
	return Kind(h[0]), p, nil
}

// Numbered is the payload of a question or of an answer.
func Numbered(n uint64, text string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, n), text...)
}

// Number takes the payload of a question or an answer apart; ok is false when it is too short to have a number.
func Number(p []byte) (n uint64, text string, ok bool) {
	if len(p) < 8 {
		return 0, "", false
	}
	return binary.BigEndian.Uint64(p), string(p[8:]), true
}

// The names of the two ports, as the guest finds them under /sys/class/virtio-ports.
const (
	ResultsPort   = "barewire.results"
	QuestionsPort = "barewire.questions"
)

// WorkFile is where a guest finds its Work.
const WorkFile = "/guest.json"

// Work is what a guest is for.
type Work struct {
	Modules   []Module          // every module that is there, each after those it needs
	Load      []string          // names of those to load before the command, with parameters after a space
	HugePages int               // of 2 MiB
	Command   []string          // program and arguments
	Env       []string          // besides PATH, HOME and TMPDIR
	Dir       string            // where the command runs
	Limit     time.Duration     // after which it is made to dump its stacks, and then killed
	Outputs   string            // directory that is brought back
	Labels    map[string]string // for whoever looks at the file
}

// Module is a kernel module in the guest.
type Module struct {
	Name  string   // as the kernel spells it, with underscores
	File  string   // path in the guest
	Needs []string // names of the modules that must be loaded before, all of them, in order
}

// Ending says how the command ended.
type Ending struct {
	Status  int    // exit status; -1 when a signal ended it, or when it could not be started
	Signal  string // that ended it
	Overrun bool   // it was ended because its time was up
	Failure string // why it could not be started
}
