package virtio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"syscall"

	"bare.wire/virtio/spec"
	"bare.wire/virtio/spec/vhost"
)

// vhostFrontEnd are features that are the front end's to give, whatever a back end offers: they need a control queue or a
// configuration, or are about what lies between driver and device, which here is a socket.
const vhostFrontEnd = spec.FeatureMAC | spec.FeatureStatus | spec.FeatureMTU | spec.FeatureCtrlVQ | spec.FeatureCtrlRx | spec.FeatureCtrlVLAN |
	spec.FeatureCtrlRxExtra | spec.FeatureGuestAnnounce | spec.FeatureCtrlMACAddr | spec.FeatureCtrlGuestOffloads | spec.FeatureMQ |
	spec.FeatureRSS | spec.FeatureHashReport | spec.FeatureStandby | spec.FeatureSpeedDuplex |
	spec.FeatureAccessPlatform | spec.FeatureNotificationData | spec.FeatureNotifConfigData | spec.FeatureRingReset | spec.FeatureSRIOV |
	vhost.FeatureProtocolFeatures | vhost.FeatureLogAll

// vhostProtocol is what of the protocol is used. ProtocolResetDevice is not: every queue is stopped one by one, which all back ends
// understand alike. ProtocolConfig is not: few back ends for networks have a configuration.
const vhostProtocol = vhost.ProtocolMQ | vhost.ProtocolReplyAck | vhost.ProtocolNetMTU | vhost.ProtocolStatus

// DialVhost begins a session with the vhost-user back end at path, and attaches it to opt.Space: from then on it can reach all
// memory there. With opt.Server it makes the socket and waits for the back end to connect, until ctx ends. The Transport's Close
// detaches it. A back end that was ended, and started again, is dialled again.
func DialVhost(ctx context.Context, path string, opt VhostOptions) (Transport, error) {
	name := "vhost-user:" + path
	switch {
	case opt.Space == nil || opt.Clock == nil:
		return nil, fmt.Errorf("%s: VhostOptions.Space and VhostOptions.Clock are required", name)
	case opt.Queues < 0 || opt.Queues > vhostMaxPairs:
		return nil, fmt.Errorf("%s: %d queue pairs: want 1 to %d, or 0 for all that the back end has", name, opt.Queues, vhostMaxPairs)
	case opt.MTU != 0 && (opt.MTU < 68 || opt.MTU > 0xffff):
		return nil, fmt.Errorf("%s: an MTU of %d: want 68 to 65535, or 0", name, opt.MTU)
	}
	log := opt.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	socket, err := vhostSocket(ctx, path, opt.Server, log.With("port", name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t := &vhostTransport{vhostSession: newVhostSession(name, socket, opt.Clock), space: opt.Space, mtu: opt.MTU, pairs: 1, active: 1}
	if err := t.greet(ctx, opt.Queues); err != nil {
		return nil, errors.Join(err, t.end())
	}
	if err := t.space.Attach(t); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), t.end())
	}
	log.Debug("vhost-user session", "port", name, "offered", t.backend.String(), "protocol", t.protocol.String(), "pairs", t.pairs)
	return t, nil
}

// maxSocketPath is how many bytes the path of a unix socket has at most: a sockaddr_un has room for 108, with the zero at the end.
const maxSocketPath = 107

// vhostSocket connects, or listens and waits for one connection.
func vhostSocket(ctx context.Context, path string, server bool, log *slog.Logger) (*net.UnixConn, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path of a socket has at most %d bytes, this one has %d: choose another", maxSocketPath, len(path))
	}
	if server {
		return vhostAccept(ctx, path, log)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && noSocket(path):
		return nil, fmt.Errorf("%w: there is something that is no socket: name the back end's socket", err)
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: no back end listens there: start it first, or use ?server if it is the one that connects", err)
	case err != nil:
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// noSocket tells what is there and is no socket, to which connecting is refused as to a socket that nobody listens on.
func noSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() != fs.ModeSocket
}

func vhostAccept(ctx context.Context, path string, log *slog.Logger) (*net.UnixConn, error) {
	l, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	defer l.Close() // it takes the file away; one back end is all there can be
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	log.Info("waiting for a vhost-user back end to connect")
	c, err := l.AcceptUnix()
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("wait for a back end to connect: %w", context.Cause(ctx))
	}
	return c, err
}

// listenUnix makes the socket, in the place of one that a process which was killed has left.
func listenUnix(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if info, statErr := os.Lstat(path); statErr != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%w: there is something that is no socket: take it away, or choose another path", err)
	}
	c, dialErr := net.DialUnix("unix", nil, addr)
	if dialErr == nil {
		_ = c.Close()
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: another process listens there: end it, or choose another path", err)
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("take away the socket that another process has left: %w", err)
	}
	return net.ListenUnix("unix", addr)
}

// greet comes to an agreement about the protocol, and finds out what there is to be driven.
func (t *vhostTransport) greet(ctx context.Context, pairs int) error {
	if err := t.tell(ctx, vhost.SetOwner, nil); err != nil {
		return err
	}
	f, err := t.askU64(ctx, vhost.GetFeatures)
	if err != nil {
		return err
	}
	t.backend = spec.Features(f)
	if !t.backend.Has(spec.FeatureVersion1) {
		return fmt.Errorf("%s: the back end does not offer version_1 but %v: it is older than VIRTIO 1.0, or no network device", t.name, t.backend)
	}
	if t.backend.Has(vhost.FeatureProtocolFeatures) {
		if err := t.agreeProtocol(ctx); err != nil {
			return err
		}
	}
	if err := t.countPairs(ctx, pairs); err != nil {
		return err
	}
	t.queues = make([]vhostQueue, 2*t.pairs)
	t.offered = t.backend &^ vhostFrontEnd
	if t.pairs > 1 {
		t.offered |= spec.FeatureMQ
	}
	if t.mtu != 0 {
		t.offered |= spec.FeatureMTU
	}
	return nil
}

func (t *vhostTransport) agreeProtocol(ctx context.Context) error {
	f, err := t.askU64(ctx, vhost.GetProtocolFeatures)
	if err != nil {
		return err
	}
	agreed := vhost.ProtocolFeatures(f) & vhostProtocol
	if err := t.tell(ctx, vhost.SetProtocolFeatures, vhost.AppendU64(nil, uint64(agreed))); err != nil {
		return err
	}
	t.protocol, t.replyAck = agreed, agreed.Has(vhost.ProtocolReplyAck)
	return nil
}

// countPairs finds out how many queue pairs there are, of which no more than wanted are used; 0: all.
func (t *vhostTransport) countPairs(ctx context.Context, wanted int) error {
	has := uint64(1)
	if t.protocol.Has(vhost.ProtocolMQ) && t.backend.Has(spec.FeatureMQ) {
		var err error
		if has, err = t.askU64(ctx, vhost.GetQueueNum); err != nil {
			return err
		}
	}
	switch {
	case has == 0:
		return t.broke("it says that it has no queues")
	case wanted > 0 && uint64(wanted) > has:
		return fmt.Errorf("%s: the back end has %d queue pairs, %d were asked for: give it more, or lower queues=", t.name, has, wanted)
	}
	t.pairs = int(min(has, vhostMaxPairs))
	if wanted > 0 {
		t.pairs = wanted
	}
	return nil
}
