package qemutest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// TestSocket is QEMU's end of the -qtest socket. It keeps the interrupts that it is told of.
type TestSocket struct {
	mu    sync.Mutex
	regs  map[uint64]uint64
	log   []string
	news  chan struct{}
	stall chan struct{} // while it is not nil no command is answered
}

// NewTestSocket returns a socket that knows no registers.
func NewTestSocket() *TestSocket {
	return &TestSocket{regs: map[uint64]uint64{}, news: make(chan struct{})}
}

// SetRegister says what a register of the chipset reads as; without it, all ones, as where there is nothing.
func (t *TestSocket) SetRegister(addr, v uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.regs[addr] = v
}

// Stall keeps commands waiting until the function that is returned is called, as a main loop does that is busy.
func (t *TestSocket) Stall() (goOn func()) {
	c := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stall = c
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stall = nil
		close(c)
	})
}

// Serve answers commands on c until it ends.
func (t *TestSocket) Serve(c io.ReadWriter) error {
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		t.mu.Lock()
		stall := t.stall
		t.mu.Unlock()
		if stall != nil {
			<-stall
		}
		if _, err := fmt.Fprintln(c, t.answer(lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (t *TestSocket) answer(line string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var addr uint64
	word, _, _ := strings.Cut(line, " ")
	switch word {
	case "readl", "readq":
		if _, err := fmt.Sscanf(line, word+" 0x%x", &addr); err != nil {
			return "FAIL " + err.Error()
		}
		v, ok := t.regs[addr]
		if !ok {
			v = ^uint64(0)
		}
		if word == "readl" {
			v &= 0xFFFFFFFF
		}
		return fmt.Sprintf("OK 0x%016x", v)
	case "writel", "set_irq_in":
		t.log = append(t.log, line)
		close(t.news)
		t.news = make(chan struct{})
		return "OK"
	}
	return "FAIL Unknown command '" + word + "'"
}

// Interrupts returns the commands by which interrupts came, in order.
func (t *TestSocket) Interrupts() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.log)
}

// Wait returns the interrupts once there are n or more of them, or when done is closed.
func (t *TestSocket) Wait(n int, done <-chan struct{}) []string {
	for {
		t.mu.Lock()
		log, news := slices.Clone(t.log), t.news
		t.mu.Unlock()
		if len(log) >= n {
			return log
		}
		select {
		case <-news:
		case <-done:
			return log
		}
	}
}
