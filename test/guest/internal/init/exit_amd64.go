package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// outb writes a byte to an I/O port. Without the privilege, the process is ended by a signal.
func outb(port uint16, v byte)

// debugExit ends QEMU by its device isa-debug-exit, if it has one. Debian's cloud kernels have no /dev/port.
func debugExit(code byte) {
	runtime.LockOSThread() // the privilege is the thread's
	if _, _, errno := unix.RawSyscall(unix.SYS_IOPL, 3, 0, 0); errno == 0 {
		outb(exitPort, code)
	}
}
