package pci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Where it is noted which driver a device had, so that Restore can give it back. /run is emptied at boot, as bindings are.
const (
	stateDir  = "/run/barewire"
	stateFile = stateDir + "/bind.json"
	stateLock = stateDir + "/bind.lock"
)

const (
	stateVersion = 1
	maxState     = 1 << 20
)

// state is the content of the file.
type state struct {
	Version int               `json:"version"`
	Boot    string            `json:"boot"` // the kernel's boot id: bindings of an earlier boot are gone
	Devices map[string]record `json:"devices"`
}

// record is a device as it was before Bind or Unbind touched it first.
type record struct {
	Vendor   uint16 `json:"vendor"` // another card at the same address is another device
	Device   uint16 `json:"device"`
	Driver   string `json:"driver"`   // "" for none
	Override string `json:"override"` // "" for none
}

// loadState reads the notes. A file that somebody other than root or the caller could have written is refused: it names drivers
// that will be bound. Notes of an earlier boot are none.
func (h *Host) loadState() (*state, error) {
	empty := &state{Version: stateVersion, Boot: h.bootID(), Devices: map[string]record{}}
	name := h.path(stateFile)
	distrust := func(why string) error {
		return fmt.Errorf("%s: %w: %s; look at it, and remove it when it is not worth keeping", name, ErrState, why)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case errors.Is(err, syscall.ELOOP):
		return nil, distrust("it is a symbolic link")
	case err != nil:
		return nil, fmt.Errorf("read the notes about bindings: %w", err)
	}
	defer f.Close() // read only: nothing can be lost
	if why, err := foreignFile(f); err != nil || why != "" {
		return nil, errors.Join(err, distrust(why))
	}
	b, err := readAll(f, maxState)
	if err != nil {
		return nil, fmt.Errorf("read the notes about bindings: %w", err)
	}
	s := &state{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, distrust(fmt.Sprintf("it is not what is written there (%v)", err))
	}
	if s.Version != stateVersion {
		return nil, distrust(fmt.Sprintf("it has version %d, want %d", s.Version, stateVersion))
	}
	if s.Boot != empty.Boot {
		return empty, nil
	}
	for address, r := range s.Devices {
		a, err := ParseAddress(address)
		if err != nil || a.String() != address || checkDriver(r.Driver, true) != nil || checkDriver(r.Override, true) != nil {
			return nil, distrust(fmt.Sprintf("it has an entry for %.40q with driver %.40q", address, r.Driver))
		}
	}
	if s.Devices == nil {
		s.Devices = empty.Devices
	}
	return s, nil
}

// foreignFile says why an open file should not be believed.
func foreignFile(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid // Linux only, as the whole package
	switch {
	case !info.Mode().IsRegular():
		return "it is not a regular file", nil
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Sprintf("it belongs to user %d", owner), nil
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Sprintf("others may write to it (mode %#o)", info.Mode().Perm()), nil
	}
	return "", nil
}

// save writes the notes so that a reader sees either the old ones or the new ones.
func (h *Host) saveState(s *state) (err error) {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(h.path(stateDir), ".bind-*") // mode 0600
	if err != nil {
		return fmt.Errorf("note the binding: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Close()) // no Sync: /run is in memory
	if err == nil {
		err = os.Rename(f.Name(), h.path(stateFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("note the binding: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// lock makes the directory and keeps others out until unlock is called.
func (h *Host) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(h.path(stateDir), 0o755); err != nil {
		return nil, fmt.Errorf("note bindings: %w%s", err, askRoot(err))
	}
	name := h.path(stateLock)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("note bindings: %w%s", err, askRoot(err))
	}
	done := make(chan error, 1)
	go func() { done <- flock(f) }()
	select {
	case err := <-done:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		}
		return func() { f.Close() }, nil // closing unlocks; nothing was written to the file
	case <-ctx.Done():
		go func() { <-done; f.Close() }() // when it comes after all, it goes at once
		return nil, fmt.Errorf("another process is binding devices (it holds %s): %w", name, ctx.Err())
	}
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// bootID names this boot of the machine; "" when the kernel does not say, which is then the same for all.
func (h *Host) bootID() string {
	id, err := readText(h.path("/proc/sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return id
}

// CheckDriver is an error when no kernel driver can be called that.
func CheckDriver(name string) error { return checkDriver(name, false) }

// checkDriver is an error for what is no driver's name: names become file names and are written to the kernel.
func checkDriver(name string, mayBeEmpty bool) error {
	if name == "" && mayBeEmpty {
		return nil
	}
	ok := name != "" && len(name) < 64 && name != "." && name != ".." && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	})
	if !ok {
		return fmt.Errorf("driver %.64q: no driver is called that; write it as in vfio-pci", name)
	}
	return nil
}

// askRoot is the remedy when permission is what was missing.
func askRoot(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "; root may (sudo)"
	}
	return ""
}
