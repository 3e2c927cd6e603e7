package pci

import (
	"fmt"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/vtop"
)

// SysfsOpener opens functions of a fake tree by sysfs, with memory of any kind.
func SysfsOpener(h *Host, space *vtop.Space, log *slog.Logger) *Opener {
	o := newOpener(h, space, OpenOptions{Access: Sysfs, Logger: log}, linux{})
	o.anySpace = true
	return o
}

// GuardianDir is where the files are that a function's guardian has open.
func GuardianDir(f Function) string {
	return fmt.Sprintf("/proc/%d/fd", f.(*sysfsFunction).guard.PID())
}

// KillGuardian ends a function's guardian by force.
func KillGuardian(t testing.TB, f Function) {
	t.Helper()
	if err := unix.Kill(f.(*sysfsFunction).guard.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
