package qemu

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"bare.wire/clock"
)

// qtestWait is how long QEMU's main loop may take to answer before it counts as hung.
const qtestWait = 30 * time.Second

// qtestID is the character device that QEMU's end of the socket becomes. QEMU 7.2 looks for this name whatever -qtest says.
const qtestID = "qtest"

// maxLine bounds an answer, bytes.
const maxLine = 4096

var errNotConnected = errors.New("qtest: QEMU is not connected")

// qtest is a client of QEMU's test socket, which runs beside the machine and can do what the proxy cannot: set interrupt pins,
// write messages, read registers of the chipset. One command at a time; QEMU's main loop answers, so whoever calls must
// not hold what a reset of the machine needs.
type qtest struct {
	clk clock.Clock
	mu  sync.Mutex // one command at a time
	r   *bufio.Reader

	connMu sync.Mutex
	c      net.Conn
	closed bool
}

func newQtest(clk clock.Clock) *qtest { return &qtest{clk: clk} }

// connect gives the client its socket.
func (q *qtest) connect(c net.Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.connMu.Lock()
	defer q.connMu.Unlock()
	if q.closed {
		_ = c.Close()
		return
	}
	q.c, q.r = c, bufio.NewReaderSize(c, maxLine)
}

// close ends the command under way, if any, and all others.
func (q *qtest) close() {
	q.connMu.Lock()
	defer q.connMu.Unlock()
	q.closed = true
	if q.c != nil {
		_ = q.c.Close()
	}
}

func (q *qtest) conn() net.Conn {
	q.connMu.Lock()
	defer q.connMu.Unlock()
	return q.c
}

// do sends a command and returns what follows OK.
func (q *qtest) do(format string, args ...any) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.conn()
	if c == nil {
		return "", errNotConnected
	}
	if err := c.SetDeadline(q.clk.Now().Add(qtestWait)); err != nil {
		return "", fmt.Errorf("qtest: %w", err)
	}
	cmd := fmt.Sprintf(format, args...)
	if _, err := c.Write([]byte(cmd + "\n")); err != nil {
		return "", fmt.Errorf("qtest: %s: %w", cmd, err)
	}
	for {
		line, err := q.r.ReadSlice('\n')
		if err != nil {
			q.close() // answers would not match commands any more
			return "", fmt.Errorf("qtest: %s: %w", cmd, err)
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		switch word {
		case "IRQ": // not an answer
		case "OK":
			return rest, nil
		default:
			return "", fmt.Errorf("qtest: %s: answer %.80q", cmd, line)
		}
	}
}

func (q *qtest) read(what string, addr uint64, bits int) (uint64, error) {
	s, err := q.do("%s 0x%x", what, addr)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil || v>>(bits-1)>>1 != 0 {
		return 0, fmt.Errorf("qtest: %s 0x%x: answer %.80q", what, addr, s)
	}
	return v, nil
}

func (q *qtest) readl(addr uint64) (uint32, error) {
	v, err := q.read("readl", addr, 32)
	return uint32(v), err
}

func (q *qtest) readq(addr uint64) (uint64, error) { return q.read("readq", addr, 64) }

// message writes an MSI message.
func (q *qtest) message(addr uint64, data uint32) error {
	_, err := q.do("writel 0x%x 0x%x", addr, data)
	return err
}

// pin drives an input of the I/O APIC.
func (q *qtest) pin(n int, high bool) error {
	level := 0
	if high {
		level = 1
	}
	_, err := q.do("set_irq_in ioapic unnamed-gpio-in %d %d", n, level)
	return err
}
