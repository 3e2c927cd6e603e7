package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/test/guest/internal/guestside"
	"bare.wire/test/guest/internal/proto"
)

var errOutside = errors.New("this works in a guest only (guest.Inside)")

// Ask puts a question to Machine.Answer on the host, from any process in the guest, and returns the answer. Questions wait for each other.
func Ask(ctx context.Context, question string) (string, error) {
	return askHost(ctx, proto.Ask, question)
}

// Monitor has QEMU execute a command of its machine protocol (set_link, device_del, announce-self, …), from any process in the guest, with
// arguments that become a JSON object (nil: none), and returns what the command returns, as JSON.
func Monitor(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s: %w", command, err)
	}
	text, err := askHost(ctx, proto.Monitor, string(line))
	return json.RawMessage(text), err
}

// askHost puts a question of either kind.
func askHost(ctx context.Context, kind proto.Kind, question string) (string, error) {
	if !Inside() {
		return "", errOutside
	}
	unlock, err := lockPort(ctx)
	if err != nil {
		return "", fmt.Errorf("asking the host: %w", err)
	}
	defer unlock()
	port, err := guestside.OpenPort(proto.QuestionsPort)
	if err != nil {
		return "", fmt.Errorf("asking the host: %w", err)
	}
	defer port.Close()
	stop := context.AfterFunc(ctx, func() { port.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer, err := ask(port, kind, question)
	if err != nil {
		return "", fmt.Errorf("asking the host: %w", errors.Join(err, context.Cause(ctx)))
	}
	return answer, nil
}

func ask(port *os.File, kind proto.Kind, question string) (string, error) {
	n := rand.Uint64()
	if err := proto.Write(port, kind, proto.Numbered(n, question)); err != nil {
		return "", err
	}
	r := bufio.NewReader(port)
	for {
		k, p, err := proto.Read(r)
		if err != nil {
			return "", err
		}
		got, text, ok := proto.Number(p)
		switch {
		case !ok:
			return "", fmt.Errorf("the host sent a frame %q without a number", k)
		case got != n: // of a question that nobody waits for any more
			continue
		case k == proto.Refusal:
			return "", errors.New(text)
		}
		return text, nil
	}
}

// lockPort waits until no other process or goroutine has the port of questions, which can be opened once at a time.
func lockPort(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile("/run/questions.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK || ctx.Err() != nil {
			f.Close()
			return nil, errors.Join(err, context.Cause(ctx))
		}
		guestside.Pause(time.Millisecond)
	}
}

// LoadModule loads a module of Machine.Modules or Machine.ModuleFiles, and what it needs, with parameters as insmod takes them.
// One that is loaded stays as it is.
func LoadModule(name string, parameters ...string) error {
	if !Inside() {
		return errOutside
	}
	w, err := guestside.ReadWork()
	if err != nil {
		return err
	}
	return guestside.Load(w, name, strings.Join(parameters, " "))
}

// UnloadModule unloads a module. Those it needed stay.
func UnloadModule(name string) error {
	if !Inside() {
		return errOutside
	}
	if err := unix.DeleteModule(strings.ReplaceAll(name, "-", "_"), unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("unloading module %s: %w", name, err)
	}
	return nil
}

// Start is how often the guest has been started, from 1: Restart makes it more.
func Start() int {
	n, err := strconv.Atoi(os.Getenv(guestside.StartVariable))
	if err != nil {
		return 1
	}
	return n
}

// Restart boots the guest again, which Machine.Restarts must permit, and does not return: the test begins anew there, with Start one higher. Only the
// results after the last start count. What the test has printed is passed on before, its files are lost.
func Restart() error {
	if !Inside() {
		return errOutside
	}
	if err := unix.Kill(1, unix.SIGUSR1); err != nil {
		return fmt.Errorf("restarting the guest: %w", err)
	}
	select {}
}

const pciDevices = "/sys/bus/pci/devices"

// Bind takes a PCI device (0000:00:03.0) from its driver and gives it to another; "" leaves it without one.
func Bind(address, driver string) error {
	if !Inside() {
		return errOutside
	}
	dir := filepath.Join(pciDevices, address)
	if now := Driver(address); now == driver {
		return nil
	} else if now != "" {
		if err := os.WriteFile(filepath.Join(dir, "driver/unbind"), []byte(address), 0); err != nil {
			return fmt.Errorf("taking %s from %s: %w", address, now, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "driver_override"), []byte(driver+"\n"), 0); err != nil {
		return fmt.Errorf("giving %s to %s: %w", address, driver, err)
	}
	if driver == "" {
		return nil
	}
	if err := os.WriteFile("/sys/bus/pci/drivers_probe", []byte(address), 0); err != nil {
		return fmt.Errorf("giving %s to %s: %w", address, driver, err)
	}
	if now := Driver(address); now != driver {
		return fmt.Errorf("giving %s to %s: its driver is %q afterwards (is the module loaded, and an IOMMU there? the kernel's messages say more)", address, driver, now)
	}
	return nil
}

// BindVFIO gives a PCI device to vfio-pci; the module must be loaded.
func BindVFIO(address string) error { return Bind(address, "vfio-pci") }

// Driver is the name of a PCI device's driver, "" if it has none.
func Driver(address string) string {
	link, err := os.Readlink(filepath.Join(pciDevices, address, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

// Interfaces are the names of the kernel's network interfaces on a PCI device.
func Interfaces(address string) []string {
	var names []string
	for _, pattern := range []string{"net/*", "virtio*/net/*"} {
		found, err := filepath.Glob(filepath.Join(pciDevices, address, pattern))
		if err != nil {
			continue // the address is no pattern that matches
		}
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
	}
	return names
}
