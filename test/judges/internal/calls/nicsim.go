package calls

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"time"
)

// patience bounds the wait for nicsim's control socket.
const patience = 10 * time.Second

// Nicsim is nicsim's control socket, on the host: a request a line, and an answer for each (docs/qemu.md). One goroutine may use it.
type Nicsim struct {
	Socket string // its file

	conn  net.Conn // from the first request on
	lines *bufio.Reader
}

// Do puts a request to nicsim and returns its answer.
func (n *Nicsim) Do(request json.RawMessage) (json.RawMessage, error) {
	if n.conn == nil {
		conn, err := net.DialTimeout("unix", n.Socket, patience)
		if err != nil {
			return nil, err
		}
		n.conn, n.lines = conn, bufio.NewReader(conn)
	}
	if _, err := n.conn.Write(append(bytes.TrimSpace(request), '\n')); err != nil {
		return nil, err
	}
	answer, err := n.lines.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// Done reads an answer of nicsim's into v, unless that is nil. A request that nicsim has refused is an error.
func Done(answer json.RawMessage, v any) error {
	var a struct {
		OK    bool
		Error string
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return err
	}
	if !a.OK {
		return errors.New(a.Error)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(answer, v)
}
