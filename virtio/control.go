package virtio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"bare.wire/nic"
	"bare.wire/virtio/spec"
)

const (
	// controlTime is how long the device may take to answer what it has been told: a hypervisor may be busy elsewhere.
	controlTime = 5 * time.Second
	// commandHead is class and command, commandAck what the device answers with (§5.1.6.5).
	commandHead, commandAck = 2, 1
)

// errRefused is what a command ends with that the device answers with an error.
var errRefused = errors.New("the device refuses it")

// command is what the control queue takes (§5.1.6.5).
type command struct {
	class, cmd byte
	data       []byte
}

func (c command) String() string { return fmt.Sprintf("control command %d.%d", c.class, c.cmd) }

// feature is what gives a device the command.
func (c command) feature() spec.Features {
	switch {
	case c.class == spec.CtrlMAC && c.cmd == spec.CtrlMACAddrSet:
		return spec.FeatureCtrlMACAddr
	case c.class == spec.CtrlVLAN:
		return spec.FeatureCtrlVLAN
	case c.class == spec.CtrlAnnounce:
		return spec.FeatureGuestAnnounce
	case c.class == spec.CtrlMQ:
		return spec.FeatureMQ | spec.FeatureRSS | spec.FeatureHashReport
	case c.class == spec.CtrlGuestOffloads:
		return spec.FeatureCtrlGuestOffloads
	}
	return spec.FeatureCtrlRx
}

// size is what a command takes of the memory for commands. Each begins at a multiple of 8.
func (c command) size() int { return (commandHead + len(c.data) + commandAck + 7) &^ 7 }

// flag is a command with one byte of data, on or off.
func flag(class, cmd byte, on bool) command {
	v := byte(0)
	if on {
		v = 1
	}
	return command{class, cmd, []byte{v}}
}

// guestOffloadsCommand asks for the receive offloads that have been agreed on.
func guestOffloadsCommand(f spec.Features) command {
	return command{spec.CtrlGuestOffloads, spec.CtrlGuestOffloadsSet, binary.LittleEndian.AppendUint64(nil, uint64(f&guestOffloads))}
}

// control is the control queue. It is used with Port.mu locked.
type control struct{ q *slowQueue }

// commands gives commands to the device, as many at once as fit, and waits for the answers. The first that is refused ends it,
// with an error that is errRefused. A device that does not answer keeps the memory of the commands: the port is gone then.
func (p *Port) commands(ctx context.Context, cmds []command) error {
	for len(cmds) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %v: %w", p.info.Name, cmds[0], context.Cause(ctx))
		}
		n, err := p.batch(ctx, cmds)
		if err != nil {
			return err
		}
		cmds = cmds[n:]
	}
	return nil
}

func (p *Port) command(ctx context.Context, cmds ...command) error { return p.commands(ctx, cmds) }

// batch runs the first commands of cmds, and returns how many.
func (p *Port) batch(ctx context.Context, cmds []command) (n int, err error) {
	c := p.control
	if c == nil {
		return 0, fmt.Errorf("%s: %v: there is no control queue: %w", p.info.Name, cmds[0], errors.ErrUnsupported)
	}
	acks := make([][]byte, 0, min(len(cmds), int(c.q.size))) // where each answer lies
	for at := 0; n < len(cmds) && at+cmds[n].size() <= slowBytes; n++ {
		ack, ok := c.add(cmds[n], at)
		if !ok {
			break // the ring is full
		}
		at += cmds[n].size()
		acks = append(acks, ack)
	}
	if n == 0 {
		return 0, fmt.Errorf("%s: %v with %d bytes of data does not fit", p.info.Name, cmds[0], len(cmds[0].data))
	}
	c.q.kick()
	if err := p.answers(ctx, n, cmds[0]); err != nil {
		return 0, err
	}
	for i, ack := range acks {
		if v := ack[0]; v != spec.CtrlOK {
			return 0, fmt.Errorf("%s: %v: answer %d: %w; features=-%v does without", p.info.Name, cmds[i], v, errRefused, p.Negotiated()&cmds[i].feature())
		}
	}
	return n, nil
}

// add lays a command out at offset at, in the pieces that devices expect: head, data, answer (§5.1.6.5).
func (c *control) add(cmd command, at int) (ack []byte, ok bool) {
	head, headPart := c.q.data(at, commandHead)
	head[0], head[1] = cmd.class, cmd.cmd
	out := []part{headPart}
	if n := len(cmd.data); n > 0 {
		data, dataPart := c.q.data(at+commandHead, n)
		copy(data, cmd.data)
		out = append(out, dataPart)
	}
	ack, ackPart := c.q.data(at+commandHead+len(cmd.data), commandAck)
	ack[0] = 0xff
	return ack, c.q.add(out, []part{ackPart}, 0)
}

// answers waits for n answers.
func (p *Port) answers(ctx context.Context, n int, first command) error {
	step, end := 5*time.Microsecond, p.clk.Nanos()+int64(controlTime)
	for {
		for n > 0 {
			if _, _, ok := p.control.q.take(); !ok {
				break
			}
			n--
		}
		switch {
		case p.Err() != nil:
			return p.Err()
		case n == 0:
			return nil
		case p.clk.Nanos() >= end:
			p.fail(fmt.Errorf("%s: %v: the device has not answered for %v and may yet do so: %w; Close the port and open it again",
				p.info.Name, first, controlTime, nic.ErrGone))
			return p.Err()
		}
		if !p.healthy() {
			return p.Err()
		}
		if err := p.clk.Sleep(context.WithoutCancel(ctx), step); err != nil {
			return fmt.Errorf("%s: %v: %w", p.info.Name, first, err)
		}
		step = min(2*step, time.Millisecond)
	}
}
