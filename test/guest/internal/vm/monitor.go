package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// monitorSocket is where QEMU listens for commands of the QEMU Machine Protocol (docs/interop/qmp-spec.txt of QEMU).
	monitorSocket = "monitor.sock"
	// monitorTime is how long a command may take: QEMU answers between two things that it does.
	monitorTime = time.Minute
)

// monitor gives QEMU a command, a JSON object, and returns what the command returns. Each command has a connection of its own.
func (r *run) monitor(command string) (string, error) {
	conn, err := net.Dial("unix", r.path(monitorSocket))
	if err != nil {
		return "", fmt.Errorf("the machine's monitor: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), monitorTime)
	defer cancel()
	context.AfterFunc(ctx, func() { conn.Close() })
	said := json.NewDecoder(conn)
	var greeting struct {
		QMP json.RawMessage `json:"QMP"`
	}
	if err := said.Decode(&greeting); err != nil || greeting.QMP == nil {
		return "", fmt.Errorf("the machine's monitor does not greet: %w", errors.Join(err, errNoGreeting))
	}
	if _, err := order(conn, said, `{"execute":"qmp_capabilities"}`); err != nil {
		return "", err
	}
	return order(conn, said, command)
}

var errNoGreeting = errors.New("its first words are no greeting")

// order has one command executed. What happens meanwhile (events) is told on the same connection, and passed over.
func order(conn net.Conn, said *json.Decoder, command string) (string, error) {
	if _, err := conn.Write([]byte(command + "\n")); err != nil {
		return "", fmt.Errorf("the machine's monitor: %w", err)
	}
	for {
		var reply struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Class string `json:"class"`
				Desc  string `json:"desc"`
			} `json:"error"`
		}
		if err := said.Decode(&reply); err != nil {
			return "", fmt.Errorf("the machine's monitor on %s: %w", command, err)
		}
		switch {
		case reply.Error != nil:
			return "", fmt.Errorf("the machine's monitor on %s: %s: %s", command, reply.Error.Class, reply.Error.Desc)
		case reply.Return != nil:
			return string(reply.Return), nil
		}
	}
}
