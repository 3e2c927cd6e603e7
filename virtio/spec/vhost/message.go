package vhost

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits of what is taken from a socket.
const (
	HeaderSize = 12
	// MaxPayload is the longest payload, bytes; the longest that is defined (GET_CONFIG) has 268.
	MaxPayload = 4096
	// MaxFDs is the most descriptors with one message, and MaxRegions the most regions of a memory table.
	MaxFDs     = 8
	MaxRegions = 8
	// MaxConfig is the longest piece of configuration in a Config, bytes.
	MaxConfig = 256
)

// Message.Flags.
const (
	Version       = 1      // in VersionMask
	VersionMask   = 3      //
	FlagReply     = 1 << 2 // this answers a request
	FlagNeedReply = 1 << 3 // an answer is wanted where there would be none: u64, 0 for success; ProtocolReplyAck
)

// ErrMessage is wrapped by all errors about bytes that are no message.
var ErrMessage = errors.New("malformed vhost-user message")

// Message is one message, of either direction. Descriptors that belong to it travel beside it.
type Message struct {
	Request Request
	Flags   uint32
	Payload []byte
}

// NewMessage is a request.
func NewMessage(r Request, payload []byte) Message {
	return Message{Request: r, Flags: Version, Payload: payload}
}

// Reply is the answer to m.
func (m Message) Reply(payload []byte) Message {
	return Message{Request: m.Request, Flags: Version | FlagReply, Payload: payload}
}

// NeedReply says that m wants an answer where there would be none.
func (m Message) NeedReply() bool { return m.Flags&FlagNeedReply != 0 }

// String is short: "SET_FEATURES (8 bytes)".
func (m Message) String() string {
	if m.Flags&FlagReply != 0 {
		return fmt.Sprintf("reply to %v (%d bytes)", m.Request, len(m.Payload))
	}
	return fmt.Sprintf("%v (%d bytes)", m.Request, len(m.Payload))
}

// Append appends the message as it goes over the socket.
func (m Message) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Request))
	b = binary.LittleEndian.AppendUint32(b, m.Flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Payload)))
	return append(b, m.Payload...)
}

// ParseHeader reads the header of a message: the message without its payload, and how many bytes that has. The version has to
// be 1 and the payload at most MaxPayload bytes.
func ParseHeader(b []byte) (m Message, payload int, err error) {
	if len(b) < HeaderSize {
		return m, 0, fmt.Errorf("%w: header of %d bytes, want %d", ErrMessage, len(b), HeaderSize)
	}
	m = Message{Request: Request(binary.LittleEndian.Uint32(b)), Flags: binary.LittleEndian.Uint32(b[4:])}
	size := binary.LittleEndian.Uint32(b[8:])
	switch {
	case m.Flags&VersionMask != Version:
		return m, 0, fmt.Errorf("%w: %v of version %d, want %d", ErrMessage, m.Request, m.Flags&VersionMask, Version)
	case size > MaxPayload:
		return m, 0, fmt.Errorf("%w: %v with a payload of %d bytes, at most %d are taken", ErrMessage, m.Request, size, MaxPayload)
	}
	return m, int(size), nil
}

// ParseMessage reads one message from the beginning of b and returns what comes behind it. The payload is a part of b.
func ParseMessage(b []byte) (m Message, rest []byte, err error) {
	m, size, err := ParseHeader(b)
	if err != nil {
		return Message{}, b, err
	}
	if len(b) < HeaderSize+size {
		return Message{}, b, fmt.Errorf("%w: %v with %d bytes of a payload of %d", ErrMessage, m.Request, len(b)-HeaderSize, size)
	}
	m.Payload = b[HeaderSize : HeaderSize+size : HeaderSize+size]
	return m, b[HeaderSize+size:], nil
}

// sized checks the length of a payload.
func (m Message) sized(n int) error {
	if len(m.Payload) != n {
		return fmt.Errorf("%w: %v, want %d", ErrMessage, m, n)
	}
	return nil
}

// AppendU64 appends a payload of one number.
func AppendU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// U64 reads a payload of one number.
func (m Message) U64() (uint64, error) {
	if err := m.sized(8); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(m.Payload), nil
}
