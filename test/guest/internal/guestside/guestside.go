// Package guestside is what init and the tests in a guest have in common: reading the work, loading modules, opening ports.
package guestside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bare.wire/test/guest/internal/proto"
)

// Path is where programs are looked for in a guest.
const Path = "/bin:/sbin:/usr/bin:/usr/sbin:/usr/local/bin"

// StartVariable is the environment variable that says how often the guest has been started, from 1.
const StartVariable = "BAREWIRE_GUEST_START"

// ReadWork reads the description of the guest's work.
func ReadWork() (*proto.Work, error) {
	b, err := os.ReadFile(proto.WorkFile)
	if err != nil {
		return nil, fmt.Errorf("what the guest is for: %w", err)
	}
	var w proto.Work
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("what the guest is for: %s: %w", proto.WorkFile, err)
	}
	return &w, nil
}

// Load loads a module and what it needs, with parameters as insmod takes them. One that is loaded already stays as it is.
func Load(w *proto.Work, name, parameters string) error {
	name = strings.ReplaceAll(name, "-", "_")
	m, ok := find(w, name)
	if !ok {
		return fmt.Errorf("module %s is not in the guest: name it in Machine.Modules or Machine.ModuleFiles", name)
	}
	for _, n := range m.Needs {
		d, ok := find(w, n)
		if !ok {
			return fmt.Errorf("module %s, which %s needs, is not in the guest", n, name)
		}
		if err := insert(d, ""); err != nil {
			return err
		}
	}
	return insert(m, parameters)
}

func find(w *proto.Work, name string) (proto.Module, bool) {
	for _, m := range w.Modules {
		if m.Name == name {
			return m, true
		}
	}
	return proto.Module{}, false
}

func insert(m proto.Module, parameters string) error {
	f, err := os.Open(m.File)
	if err != nil {
		return fmt.Errorf("loading module %s: %w", m.Name, err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("loading module %s %s: %w (the kernel's messages say more)", m.Name, parameters, err)
	}
	return nil
}

// portTries times portPause is how long a port may take to appear after its driver has been loaded.
const (
	portTries = 600
	portPause = 50 * time.Millisecond
)

// OpenPort opens a virtio-serial port by its name.
func OpenPort(name string) (*os.File, error) {
	for range portTries {
		if dev, err := portDevice(name); err != nil {
			return nil, err
		} else if dev != "" {
			f, err := os.OpenFile(dev, os.O_RDWR, 0)
			if err != nil {
				return nil, fmt.Errorf("port %s: %w", name, err)
			}
			return f, nil
		}
		Pause(portPause)
	}
	return nil, fmt.Errorf("port %s did not appear in %v", name, portTries*portPause)
}

// portDevice is the device of the port of a name, "" while there is none.
func portDevice(name string) (string, error) {
	files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || strings.TrimSpace(string(b)) != name {
			continue // a port without a name yet has an empty one
		}
		dev := filepath.Join("/dev", filepath.Base(filepath.Dir(f)))
		if _, err := os.Stat(dev); err == nil {
			return dev, nil
		}
	}
	return "", nil
}

// Pause waits in real time: the devices of a guest, and other processes in it, keep no virtual one.
func Pause(d time.Duration) { time.Sleep(d) }
