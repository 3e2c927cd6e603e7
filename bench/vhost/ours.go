package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/device"
	"bare.wire/mbuf"
	"bare.wire/nic"
)

// What both front ends do alike (dpdk/turn.h, dpdk/frontend.c).
const (
	frameLen   = 60
	ringSize   = 512
	buffers    = 4095
	warmUp     = 20      // rounds
	idleCalls  = 1000000 // after which a frame is given up
	longestRun = 1 << 9  // frames of a round, and of a call
	turnFD     = 3       // the descriptor of the turns
	turnSize   = 4 + 4 + 8
)

// Requests to the back end.
const (
	turnTake  = 1 // receive count frames
	turnGive  = 2 // send count frames
	turnSink  = 3 // receive for count milliseconds
	turnFlood = 4 // send for count milliseconds
)

// front is our driver on a vhost-user socket, as a process of its own.
type front struct {
	rx    nic.RxQueue
	tx    nic.TxQueue
	cache *mbuf.Cache
	bufs  []*mbuf.Buf
	burst int
	err   error

	frames, bytes, peerFrames, peerBytes uint64
}

// frontEnd is what this program is when it is started as `vhost frontend CPU SOCKET FEATURES MODE BURST ROUNDS FRAMES`.
func frontEnd(args []string) (err error) {
	if len(args) != 7 {
		return errors.New("frontend CPU SOCKET FEATURES MODE BURST ROUNDS FRAMES")
	}
	var cpu, rounds, n int
	f := &front{bufs: make([]*mbuf.Buf, longestRun)}
	for i, to := range map[int]*int{0: &cpu, 4: &f.burst, 5: &rounds, 6: &n} {
		if *to, err = strconv.Atoi(args[i]); err != nil {
			return err
		}
	}
	if f.burst < 1 || f.burst > longestRun || n < 1 || n > longestRun || rounds < 1 {
		return errors.New("burst or frames out of range")
	}
	uri := "vhost-user:" + args[1] + "?features=" + url.QueryEscape(args[2])
	if args[2] == "" {
		uri = "vhost-user:" + args[1]
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	s, err := device.OpenSet(ctx, device.Options{}, uri)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	pool, err := mbuf.NewPool(mbuf.Config{Name: "bench", Space: s.Space, Buffers: buffers})
	if err != nil {
		return err
	}
	if err := s.Ports[0].Start(ctx, nic.Config{Pool: pool, RxDesc: ringSize, TxDesc: ringSize}); err != nil {
		return err
	}
	f.rx, f.tx, f.cache = s.Ports[0].Rx(0), s.Ports[0].Tx(0), pool.NewCache()
	defer f.cache.Close()
	time.Sleep(300 * time.Millisecond) // the back end has yet to see its queues

	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processor %d: %w", cpu, err)
	}
	line := f.measure(args[3], rounds, n)
	if f.err == nil {
		_, err = fmt.Println(line)
	}
	return errors.Join(f.err, err)
}

// measure returns the line that is printed.
func (f *front) measure(mode string, rounds, n int) string {
	if mode == "sink" || mode == "flood" {
		rate := f.freeRun(mode == "sink", rounds)
		return f.result(strconv.FormatFloat(rate, 'f', 0, 64))
	}
	round, ok := map[string]func(int) int64{"tx": f.sendRound, "rx": f.receiveRound, "io": f.forwardRound}[mode]
	if !ok {
		f.err = fmt.Errorf("mode %q", mode)
		return ""
	}
	none := empty()
	for range warmUp {
		round(n)
	}
	f.frames, f.bytes, f.peerFrames, f.peerBytes = 0, 0, 0, 0
	ns := make([]string, rounds)
	for i := range ns {
		ns[i] = strconv.FormatInt(round(n)-none, 10)
	}
	return f.result(ns...)
}

func (f *front) result(values ...string) string {
	return fmt.Sprintf("result %d %d %d %d %s", f.frames, f.bytes, f.peerFrames, f.peerBytes, strings.Join(values, " "))
}

// cpuTime is the time that this thread has run, ns.
func cpuTime() int64 {
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t)), 0)
	return t.Sec*1e9 + t.Nsec
}

// empty is what the clock itself takes.
func empty() int64 {
	v := make([]int64, 1001)
	for i := range v {
		t := cpuTime()
		v[i] = cpuTime() - t
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// make allocates n frames. What is in them is whatever was in their buffers.
func (f *front) make(n int) []*mbuf.Buf {
	got := f.cache.AllocBulk(f.bufs[:n])
	for _, m := range f.bufs[:got] {
		if err := m.SetLen(frameLen); err != nil {
			f.err = err
		}
	}
	if got < n {
		f.err = errors.New("the front end has no buffers")
	}
	return f.bufs[:got]
}

func (f *front) sendRound(n int) int64 {
	frames := f.make(n)
	sent := 0
	t := cpuTime()
	for idle := 0; sent < len(frames) && idle < idleCalls; idle++ {
		sent += f.tx.Send(frames[sent:min(sent+f.burst, len(frames))])
	}
	t = cpuTime() - t
	f.cache.FreeBulk(frames[sent:])
	took, bytes := f.ask(turnTake, sent)
	f.count(sent, sent*frameLen, took, bytes)
	return t
}

func (f *front) receiveRound(n int) int64 {
	gave, bytes := f.ask(turnGive, n)
	got := 0
	t := cpuTime()
	for idle := 0; got < gave && idle < idleCalls; idle++ {
		got += f.rx.Recv(f.bufs[got:min(got+f.burst, gave)])
	}
	t = cpuTime() - t
	length := 0
	for _, m := range f.bufs[:got] {
		length += m.FrameLen()
	}
	f.cache.FreeBulk(f.bufs[:got])
	f.count(got, length, gave, bytes)
	return t
}

func (f *front) forwardRound(n int) int64 {
	gave, given := f.ask(turnGive, n)
	got := 0
	t := cpuTime()
	for idle := 0; got < gave && idle < idleCalls; idle++ {
		k := f.rx.Recv(f.bufs[:min(f.burst, gave-got)])
		for sent := 0; sent < k && idle < idleCalls; idle++ {
			sent += f.tx.Send(f.bufs[sent:k])
		}
		got += k
	}
	t = cpuTime() - t
	took, bytes := f.ask(turnTake, got)
	f.count(got, int(given), took, bytes)
	return t
}

func (f *front) count(frames, bytes, peerFrames int, peerBytes uint64) {
	f.frames += uint64(frames)
	f.bytes += uint64(bytes)
	f.peerFrames += uint64(peerFrames)
	f.peerBytes += peerBytes
}

// freeRun sends or receives for a time while the back end does the opposite, and returns frames per second.
func (f *front) freeRun(sending bool, ms int) float64 {
	what := turnFlood
	if sending {
		what = turnSink
	}
	f.ask(what, ms)
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); f.err == nil && time.Now().Before(end); {
		for range 64 {
			var n int
			if sending {
				frames := f.make(f.burst)
				n = f.tx.Send(frames)
				f.cache.FreeBulk(frames[n:])
			} else {
				n = f.rx.Recv(f.bufs[:f.burst])
				f.cache.FreeBulk(f.bufs[:n])
			}
			f.frames += uint64(n)
		}
	}
	frames, bytes := f.answer()
	f.bytes, f.peerFrames, f.peerBytes = f.frames*frameLen, uint64(frames), bytes
	moved := f.frames
	if sending {
		moved = f.peerFrames
	}
	return float64(moved) * 1e3 / float64(ms)
}

// turn is a request or an answer, as turn.h has it.
type turn struct {
	what, count uint32
	bytes       uint64
}

// ask has the back end do something, while this thread sleeps.
func (f *front) ask(what, count int) (frames int, bytes uint64) {
	if f.err != nil {
		return 0, 0
	}
	t := turn{what: uint32(what), count: uint32(count)}
	mem := (*[turnSize]byte)(unsafe.Pointer(&t))
	if _, err := unix.Write(turnFD, mem[:]); err != nil {
		f.err = os.NewSyscallError("asking the back end", err)
		return 0, 0
	}
	return f.answer()
}

func (f *front) answer() (frames int, bytes uint64) {
	if f.err != nil {
		return 0, 0
	}
	var t turn
	mem := (*[turnSize]byte)(unsafe.Pointer(&t))
	for {
		n, err := unix.Read(turnFD, mem[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n != turnSize:
			f.err = fmt.Errorf("the back end went away: %d bytes, %v", n, err)
			return 0, 0
		}
		return int(t.count), t.bytes
	}
}
