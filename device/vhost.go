package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"bare.wire/clock"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// maxVhostQueues is the most pairs of queues that the protocol can number.
const maxVhostQueues = 128

func vhostUsage() string {
	return fmt.Sprintf("%-17s make the socket and wait for the back end to connect, in place of connecting\n", "server") +
		fmt.Sprintf("%-17s pairs of queues, 1 to %d (as many as the back end has)\n", "queues", maxVhostQueues) +
		fmt.Sprintf("%-17s virtio features that are taken, or with a minus not taken: -event_idx,-mrg_rxbuf\n", "features") +
		fmt.Sprintf("%-17s the address of this end (made up anew each time)\n", "mac") +
		fmt.Sprintf("%-17s bytes that a packet may have, which the back end is told, 68 to 65535\n", "mtu")
}

// vhostConfig is what the parameters of vhost-user: say.
type vhostConfig struct {
	server   bool
	queues   int
	mtu      int
	mac      [6]byte
	features spec.Restriction
}

func parseVhost(q url.Values) (cfg vhostConfig, err error) {
	if q.Has("server") {
		if v := q.Get("server"); v != "" {
			return cfg, fmt.Errorf("server=%s: it has no value", v)
		}
		cfg.server = true
		q.Del("server")
	}
	if cfg.queues, err = number(q, "queues", 0, 1, maxVhostQueues); err != nil {
		return cfg, err
	}
	if cfg.mtu, err = number(q, "mtu", 0, 68, 65535); err != nil {
		return cfg, err
	}
	if cfg.features, err = spec.ParseRestriction(q.Get("features")); err != nil {
		return cfg, err
	}
	q.Del("features")
	if v := q.Get("mac"); v != "" {
		mac, err := net.ParseMAC(v)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 || [6]byte(mac) == [6]byte{} {
			return cfg, fmt.Errorf("mac=%s: want the address of one station, such as 02:00:00:00:00:01", v)
		}
		cfg.mac = [6]byte(mac)
	}
	q.Del("mac")
	for key := range q {
		return cfg, fmt.Errorf("parameter %q: a vhost-user device takes server, queues, features, mac and mtu", key)
	}
	return cfg, nil
}

// openVhost begins a session with each back end. The back ends run in real time; so does the set.
func openVhost(ctx context.Context, opt Options, s *Set, names []name) error {
	var configs []vhostConfig
	for _, n := range names {
		if n.rest == "" {
			return fmt.Errorf("%q: the path of the socket is missing: vhost-user:/run/pg0", n.uri)
		}
		cfg, err := parseVhost(n.query)
		if err != nil {
			return fmt.Errorf("vhost-user:%s: %w", n.rest, err)
		}
		configs = append(configs, cfg)
	}
	s.Clock = clock.Real()
	s.About = "vhost-user back end"
	for i, n := range names {
		port, err := openOneVhost(ctx, opt, s, n.rest, configs[i])
		if err != nil {
			return &HostError{err}
		}
		s.Ports, s.URIs = append(s.Ports, port), append(s.URIs, "vhost-user:"+n.rest)
	}
	return nil
}

func openOneVhost(ctx context.Context, opt Options, s *Set, path string, cfg vhostConfig) (*virtio.Port, error) {
	t, err := virtio.DialVhost(ctx, path, virtio.VhostOptions{
		Space: s.Space, Clock: s.Clock, Logger: opt.Logger, Server: cfg.server, Queues: cfg.queues, MTU: cfg.mtu,
	})
	if err != nil {
		return nil, err
	}
	port, err := virtio.Open(ctx, t, virtio.Options{
		Space: s.Space, Clock: s.Clock, Logger: opt.Logger, Node: -1, Software: true, Features: cfg.features, MAC: cfg.mac,
	})
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return port, nil
}
