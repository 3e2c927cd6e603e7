// Package streams has a host's kernel judge TCP streams: a server that takes or gives a stream whose bytes both sides know from its
// length, and says the SHA-256 of what it has got or given.
//
//	client ── direction (1 byte), n (8 bytes, little-endian) ──▶ server
//	client ══ n bytes, one way or the other ═════════════════════ server
//	client ◀── SHA-256 of the n bytes as the server has them ──── server
package streams

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// Directions.
const (
	TowardsServer = 0
	TowardsClient = 1
)

// headerLen is the direction and the length.
const headerLen = 9

// patience is how long a connection may take.
const patience = 3 * time.Minute

// Header is what a connection begins with.
func Header(direction byte, n uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{direction}, n)
}

// Bytes are the bytes of a stream of n.
func Bytes(n uint64) io.Reader {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], n)
	return io.LimitReader(rand.NewChaCha8(seed), int64(n))
}

// Serve serves connections until the listener is closed.
func Serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			context.AfterFunc(ctx, func() { c.Close() })
			_ = serve(c)
		}()
	}
}

func serve(c net.Conn) error {
	var head [headerLen]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n, sum := binary.LittleEndian.Uint64(head[1:]), sha256.New()
	var err error
	if head[0] == TowardsServer {
		_, err = io.Copy(sum, io.LimitReader(c, int64(n)))
	} else {
		_, err = io.Copy(io.MultiWriter(c, sum), Bytes(n))
	}
	if err != nil {
		return err
	}
	_, err = c.Write(sum.Sum(nil))
	return err
}
