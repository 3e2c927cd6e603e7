package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"bare.wire/sim/vhostuser"
)

// maxRequest bounds a request, bytes.
const maxRequest = 64 << 10

// control is the socket by which a test steers the cards while a guest runs: a JSON object a line, and one for each answer.
type control struct {
	answer func(line []byte) answer
	ln     *net.UnixListener
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func listen(path string, f func(line []byte) answer) (*control, error) {
	ln, err := vhostuser.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &control{answer: f, ln: ln, conns: map[net.Conn]bool{}}, nil
}

func (c *control) serve() {
	for {
		conn, err := c.ln.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		if c.closed {
			_ = conn.Close()
		} else {
			c.conns[conn] = true
			c.wg.Go(func() { c.talk(conn) })
		}
		c.mu.Unlock()
	}
}

// talk answers one client.
func (c *control) talk(conn net.Conn) {
	defer func() {
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
		_ = conn.Close()
	}()
	in, out := bufio.NewReaderSize(conn, maxRequest), json.NewEncoder(conn)
	for {
		line, err := in.ReadSlice('\n')
		var a answer
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			a = failure(fmt.Errorf("a request is one line of at most %d bytes", maxRequest))
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
		case len(bytes.TrimSpace(line)) > 0:
			a = c.answer(line)
		}
		if a != nil && out.Encode(a) != nil || err != nil {
			return
		}
	}
}

// close ends all conversations and removes the socket.
func (c *control) close() {
	_ = c.ln.Close() // removes the file, too
	c.mu.Lock()
	c.closed = true
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}
