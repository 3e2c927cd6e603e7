package qemutest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Behaviour of Main, given as the value of -name.
const (
	Obedient = "obedient" // probes every function, has it interrupt, and exits with 7
	Hanging  = "hanging"  // says "hanging" and waits to be killed, a minute at most
	Babbling = "babbling" // sends what is no message
)

// ramSize is the guest's memory, bytes.
const ramSize = 1 << 20

// Main is a program that passes for QEMU, as far as this package's user can tell; it returns the exit status.
func Main(args []string, out io.Writer) int {
	if len(args) == 2 && args[0] == "-device" && args[1] == "help" {
		fmt.Fprintln(out, `name "x-pci-proxy-dev", bus PCI`)
		return 0
	}
	if err := run(args, out); err != nil {
		fmt.Fprintln(out, "fake QEMU:", err)
		return 1
	}
	return 7
}

// run does what the value of -name says.
func run(args []string, out io.Writer) error {
	var devices []string
	var qtest, name string // qtest: the character device
	for i := 0; i+1 < len(args); i++ {
		switch args[i] {
		case "-device":
			devices = append(devices, args[i+1])
		case "-chardev":
			qtest = args[i+1]
		case "-name":
			name = args[i+1]
		}
	}
	c, err := inherited(qtest)
	if err != nil {
		return err
	}
	sock := NewTestSocket()
	go func() { _ = sock.Serve(c) }() // until the program ends
	for i, d := range devices {
		f, err := inherited(d)
		if err != nil {
			return err
		}
		p := NewProxy(f)
		switch name {
		case Hanging:
			fmt.Fprintln(out, "hanging")
			_, err := unix.Poll(nil, 60_000) // ms: whoever forgets to kill us is not left with us for ever
			return err
		case Babbling:
			if err := p.Send(99, nil); err != nil {
				return err
			}
			_, err := p.answer()
			return err
		}
		if err := p.drive(i, out, sock); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	return nil
}

// inherited is the descriptor that a -device or a -chardev names.
func inherited(option string) (*os.File, error) {
	for _, part := range strings.Split(option, ",") {
		if v, ok := strings.CutPrefix(part, "fd="); ok {
			fd, err := strconv.Atoi(v)
			if err != nil {
				return nil, err
			}
			return os.NewFile(uintptr(fd), option), nil
		}
	}
	return nil, errors.New("no fd= in " + option)
}

// drive is a guest's few first steps with a card: RAM, probe, identity, an interrupt.
func (p *Proxy) drive(i int, out io.Writer, sock *TestSocket) error {
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	base := uint32(0xFEB00000 + i<<20)
	if err := errors.Join(unix.Ftruncate(fd, ramSize), p.Memory(Section{FD: fd, Size: ramSize}), p.IRQFDs()); err != nil {
		return err
	}
	if _, err := p.Probe(base); err != nil {
		return err
	}
	id, err := p.ReadConfig(0, 4)
	if err != nil {
		return err
	}
	status, err := p.Read(uint64(base)+8, 4, true)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "function %d: %04x:%04x, STATUS %08x\n", i, id&0xFFFF, id>>16, status)
	if _, err := p.Read(uint64(base)+0x1FFFC, 4, true); err != nil { // which is no register: a driver's mistake
		return err
	}
	// An interrupt by its pin: EIMS, EICS; then EICR, which ends it.
	before := len(sock.Interrupts())
	if err := errors.Join(p.Write(uint64(base)+0x880, 4, true, 1<<20), p.Write(uint64(base)+0x808, 4, true, 1<<20)); err != nil {
		return err
	}
	sock.Wait(before+1, nil)
	if _, err := p.Read(uint64(base)+0x800, 4, true); err != nil {
		return err
	}
	for _, s := range sock.Interrupts()[before:] {
		fmt.Fprintf(out, "function %d: %s\n", i, s)
	}
	return nil
}

// Env is the variable of the environment that makes a test binary pass for QEMU: Asked says whether it is set.
const Env = "BAREWIRE_PASS_FOR_QEMU"

// Asked says whether this process is to pass for QEMU. The TestMain of a test that starts itself as QEMU asks first, and then
// ends with what Main returns.
func Asked() bool { return os.Getenv(Env) != "" }
