package guardian

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// The program is a guardian when it is called processName and environment has the value version: that is how Start starts it.
// The variable alone, which may be inherited from anywhere, changes nothing.
const (
	processName = "barewire-guardian"
	environment = "BAREWIRE_GUARDIAN"
	version     = "1"
)

// What a guardian is started with, beside standard input and outputs, which are /dev/null.
const (
	sockFD = 3 + iota
	parentFD
	configFD
	firstOther
)

func init() {
	if len(os.Args) == 0 || os.Args[0] != processName || os.Getenv(environment) != version {
		return
	}
	if err := guard(); err != nil {
		fmt.Fprintln(os.Stderr, "barewire guardian:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// guard is the whole life of a guardian.
func guard() error {
	// Whoever sends signals means the parent; what happens then is seen by its pidfd.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM)
	if err := startedBy(sockFD, os.Getppid()); err != nil {
		return err
	}
	if err := unix.CloseRange(firstOther, math.MaxUint32, 0); err != nil {
		return fmt.Errorf("close the other files: %w", err)
	}
	// When memory runs out the guardian must not be the one that is sacrificed. That needs a privilege it may not have.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	if err := unix.Sendto(sockFD, message(opReady, 0, 0), unix.MSG_NOSIGNAL, nil); err != nil {
		return endDMA(configFD, math.MaxInt)
	}
	return serve(map[uint32]int{})
}

// startedBy says whether fd is a socket that the process parent has made, as this user: a program with more rights than whoever
// called it is nobody's guardian, and neither is one whose parent has ended already, which has not switched DMA on.
func startedBy(fd, parent int) error {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err == nil && kind != unix.SOCK_SEQPACKET {
		err = unix.EPROTOTYPE
	}
	var peer *unix.Ucred
	if err == nil {
		peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	}
	if err == nil && (int(peer.Pid) != parent || int(peer.Uid) != os.Geteuid()) {
		err = fmt.Errorf("process %d of user %d made its socket, its parent is %d", peer.Pid, peer.Uid, parent)
	}
	if err != nil {
		return fmt.Errorf("%s is set, and no driver has started this: unset it: %w", environment, err)
	}
	return nil
}

// serve does what the parent asks until it says that it is done, or ends. held are descriptors by their number.
func serve(held map[uint32]int) error {
	for {
		p := []unix.PollFd{{Fd: sockFD, Events: unix.POLLIN}, {Fd: parentFD, Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); err != nil {
			if err == unix.EINTR {
				continue
			}
			return errors.Join(err, endDMA(configFD, math.MaxInt))
		}
		if p[1].Revents != 0 {
			return endDMA(configFD, math.MaxInt)
		}
		op, number, fds, err := receive(sockFD)
		if err != nil {
			// The parent has closed its end, which it does not do while it lives.
			return endDMA(configFD, math.MaxInt)
		}
		status := byte(0)
		switch {
		case op == opHold && len(fds) == 1 && held[number] == 0:
			held[number] = fds[0]
		case op == opDrop && held[number] != 0:
			_ = unix.Close(held[number])
			delete(held, number)
		case op == opQuit:
			if err := endDMA(configFD, 100); err != nil {
				status = byte(unix.EIO)
			}
		default:
			status = byte(unix.EINVAL)
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		}
		_ = unix.Sendto(sockFD, message(op, status, number), unix.MSG_NOSIGNAL, nil) // a parent that is gone is seen above
		if op == opQuit && status == 0 {
			return nil
		}
	}
}

// receive takes one message. The descriptors that came with it are the caller's.
func receive(fd int) (op byte, number uint32, fds []int, err error) {
	var b [messageSize]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := unix.Recvmsg(fd, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(fd, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err == nil && n != len(b) {
		err = fmt.Errorf("a message of %d bytes", n)
	}
	if err != nil {
		return 0, 0, nil, err
	}
	list, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, 0, nil, err
	}
	for _, m := range list {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return 0, 0, nil, err
		}
		fds = append(fds, more...)
	}
	return b[0], binary.LittleEndian.Uint32(b[4:]), fds, nil
}

// endDMA switches bus mastering off in the PCI command register and reads back that it is (PCI Local Bus Specification 3.0
// §6.2.2). The read also pushes out what the device was writing. It tries again, every 10 ms, so many times: while the
// device may still write, its memory must not go to anybody else. A device that is not there any more writes nothing.
func endDMA(config, tries int) error {
	const command, master = 0x04, 1 << 2
	var failed error
	for range tries {
		var b [2]byte
		n, err := unix.Pread(config, b[:], command)
		v := binary.LittleEndian.Uint16(b[:])
		switch {
		case errors.Is(err, unix.ENODEV), err == nil && n == len(b) && v == 0xffff:
			return nil
		case err == nil && n != len(b):
			err = fmt.Errorf("configuration space gives %d bytes", n)
		case err == nil && v&master == 0:
			return nil
		case err == nil:
			binary.LittleEndian.PutUint16(b[:], v&^master)
			if _, err = unix.Pwrite(config, b[:], command); err == nil {
				failed = errors.New("bus mastering stays on")
				if n, err := unix.Pread(config, b[:], command); err == nil && n == len(b) && binary.LittleEndian.Uint16(b[:])&master == 0 {
					return nil
				}
			}
		}
		if err != nil {
			failed = err
		}
		_, _ = unix.Poll(nil, 10)
	}
	return failed
}
