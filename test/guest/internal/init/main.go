// Init is the first process of a guest. It makes the machine ready as its Work says (package proto), runs one command, and tells the host over
// a virtio-serial port what the command printed and how it ended. The console is left to the kernel, and to init's own troubles.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"bare.wire/test/guest/internal/guestside"
	"bare.wire/test/guest/internal/proto"
)

// What init writes to QEMU's isa-debug-exit; QEMU ends with twice that and one. Zero would be what QEMU says of its own errors.
const (
	exitPort   = 0xf4
	exitDone   = 0x10 // everything has been said over the port of results
	exitFailed = 0x11 // init could not do its work; the console says why
)

func main() {
	// Before anything else: what follows ends by switching the machine off.
	if _, err := os.Stat(proto.WorkFile); os.Getpid() != 1 || err != nil {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a guest, and nothing else: see bare.wire/test/guest")
		os.Exit(2)
	}
	code := byte(exitFailed)
	defer func() {
		if r := recover(); r != nil {
			fmt.Println("init: panic:", r)
		}
		switchOff(code)
	}()
	if err := live(); err != nil {
		fmt.Println("init:", err)
		return
	}
	code = exitDone
}

// live is the whole life of the guest.
func live() error {
	mount()
	w, err := guestside.ReadWork()
	if err != nil {
		return err
	}
	l, err := connect(w)
	if err != nil {
		return err
	}
	start, err := l.greet()
	if err != nil {
		return err
	}
	if err := prepare(w); err != nil {
		l.logf("%v", err)
		return l.end(proto.Ending{Status: -1, Failure: err.Error()})
	}
	end := run(l, w, start)
	if err := sendKernelMessages(l); err != nil {
		l.logf("the kernel's messages: %v", err)
	}
	if err := sendOutputs(l, w.Outputs); err != nil {
		l.logf("%s: %v", w.Outputs, err)
	}
	return l.end(end)
}

// line is the connection to the host. Its methods may be called from any goroutine.
type line struct {
	mu   sync.Mutex
	port *os.File
	in   *bufio.Reader
}

// connect opens the port of results. What it needs is loaded first.
func connect(w *proto.Work) (*line, error) {
	for _, m := range []string{"virtio_pci", "virtio_console"} {
		if err := guestside.Load(w, m, ""); err != nil {
			return nil, err
		}
	}
	port, err := guestside.OpenPort(proto.ResultsPort)
	if err != nil {
		return nil, err
	}
	return &line{port: port, in: bufio.NewReader(port)}, nil
}

func (l *line) send(k proto.Kind, p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return proto.Write(l.port, k, p)
}

func (l *line) logf(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if l.send(proto.Log, []byte(s)) != nil {
		fmt.Println("init:", s)
	}
}

// ask sends a frame and waits for its answer.
func (l *line) ask(k proto.Kind, p []byte, answer proto.Kind) ([]byte, error) {
	if err := l.send(k, p); err != nil {
		return nil, err
	}
	got, p, err := proto.Read(l.in)
	if err != nil {
		return nil, fmt.Errorf("waiting for the host: %w", err)
	}
	if got != answer {
		return nil, fmt.Errorf("the host answers %q with %q", k, got)
	}
	return p, nil
}

// greet tells the host that the guest is there, and returns the number of this start.
func (l *line) greet() (int, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return 0, fmt.Errorf("uname: %w", err)
	}
	p, err := l.ask(proto.Hello, []byte(unix.ByteSliceToString(u.Release[:])), proto.Welcome)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(p))
}

func (l *line) end(e proto.Ending) error {
	b, err := json.Marshal(e)
	if err == nil {
		_, err = l.ask(proto.End, b, proto.Ack)
	}
	return err
}

// mount mounts what a system has. A mount that does not work shows in what needs it.
func mount() {
	for _, m := range []struct{ source, at, kind, options string }{
		{"proc", "/proc", "proc", ""},
		{"sys", "/sys", "sysfs", ""},
		{"dev", "/dev", "devtmpfs", ""},
		{"debug", "/sys/kernel/debug", "debugfs", ""},
		{"tmp", "/tmp", "tmpfs", ""},
		{"run", "/run", "tmpfs", ""},
		{"shm", "/dev/shm", "tmpfs", ""},
		{"pts", "/dev/pts", "devpts", ""},
		{"huge", "/dev/hugepages", "hugetlbfs", "pagesize=2M"},
	} {
		os.MkdirAll(m.at, 0o755)
		if err := unix.Mount(m.source, m.at, m.kind, 0, m.options); err != nil && err != unix.EBUSY {
			fmt.Printf("init: mounting %s: %v\n", m.at, err)
		}
	}
	for name, target := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2", "/etc/mtab": "/proc/self/mounts"} {
		os.MkdirAll("/etc", 0o755)
		os.Symlink(target, name)
	}
}

// prepare makes the machine what the work asks for.
func prepare(w *proto.Work) error {
	if err := os.MkdirAll(w.Outputs, 0o777); err != nil {
		return err
	}
	for _, m := range w.Load {
		name, args, _ := strings.Cut(m, " ")
		if err := guestside.Load(w, name, args); err != nil {
			return err
		}
	}
	if err := hugePages(w.HugePages); err != nil {
		return err
	}
	return loopbackUp()
}

// hugePages sets pages of 2 MiB aside. The kernel gives fewer without a word, so it is asked.
func hugePages(n int) error {
	if n == 0 {
		return nil
	}
	const file = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	if err := os.WriteFile(file, []byte(strconv.Itoa(n)), 0); err != nil {
		return fmt.Errorf("huge pages: %w", err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("huge pages: %w", err)
	}
	if got, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || got < n {
		return fmt.Errorf("huge pages: the kernel gave %s of %d: give the guest more memory", strings.TrimSpace(string(b)), n)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bringing the loopback interface up: %w", err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err == nil {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	}
	if err != nil {
		return fmt.Errorf("bringing the loopback interface up: %w", err)
	}
	return nil
}

// switchOff ends the machine, with a status where QEMU has a device for it.
func switchOff(code byte) {
	os.Stdout.Sync()
	debugExit(code)
	unix.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}
