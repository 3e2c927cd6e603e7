package testpmd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo-terminal: the end of whoever types, and the end of the program (pty(7)). The program's end does not
// echo and does not change line ends.
func openTerminal() (term, line *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("/dev/ptmx: %w (is devpts mounted on /dev/pts?)", err)
	}
	term = os.NewFile(uintptr(fd), "/dev/ptmx") // in Go's poller, as the descriptor does not block
	defer func() {
		if err != nil {
			_ = term.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlocking the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("the terminal's number: %w", err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	line, err = os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := raw(int(line.Fd())); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return term, line, nil
}

// raw takes from a terminal what it does to characters (termios(3), cfmakeraw).
func raw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("reading its modes: %w", err)
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("setting its modes: %w", err)
	}
	return nil
}
