package device

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"

	"bare.wire/clock"
	"bare.wire/pci"
	"bare.wire/sim"
	"bare.wire/sim/tap"
	"bare.wire/sim/virtionet"
	"bare.wire/virtio"
	"bare.wire/virtio/spec"
)

// maxTapQueues is the most pairs of queues of a TAP's device.
const maxTapQueues = 16

func tapUsage() string {
	return fmt.Sprintf("%-17s pairs of queues, 1 to %d (1)\n", "queues", maxTapQueues) +
		fmt.Sprintf("%-17s virtio features that are taken, or with a minus not taken: -event_idx,-mrg_rxbuf\n", "features") +
		fmt.Sprintf("%-17s bytes that the device says a packet may have, 68 to 65535 (1500)\n", "mtu") +
		fmt.Sprintf("%-17s who steps the device: inline, whoever uses it; or a goroutine (threaded)\n", "mode")
}

// tapConfig is what the parameters of tap: say.
type tapConfig struct {
	threaded bool
	queues   int
	mtu      int
	features spec.Restriction
}

func parseTap(q url.Values) (cfg tapConfig, err error) {
	if cfg.threaded, err = choice(q, "mode", "inline", "threaded"); err != nil {
		return cfg, err
	}
	if cfg.queues, err = number(q, "queues", 1, 1, maxTapQueues); err != nil {
		return cfg, err
	}
	if cfg.mtu, err = number(q, "mtu", 1500, 68, 65535); err != nil {
		return cfg, err
	}
	if cfg.features, err = spec.ParseRestriction(q.Get("features")); err != nil {
		return cfg, err
	}
	q.Del("features")
	for key := range q {
		return cfg, fmt.Errorf("parameter %q: a TAP takes queues, features, mtu and mode", key)
	}
	return cfg, nil
}

// number reads a parameter that is a number from low to high, and removes it.
func number(q url.Values, key string, otherwise, low, high int) (int, error) {
	v := q.Get(key)
	q.Del(key)
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s=%s: want a number from %d to %d", key, v, low, high)
	}
	return n, nil
}

// openTap opens TAP interfaces, each as the wire of a virtio device of its own, and the driver on it.
func openTap(ctx context.Context, opt Options, s *Set, names []name) error {
	var configs []tapConfig
	for _, n := range names {
		if n.rest == "" {
			return fmt.Errorf("%q: the name of the interface is missing: tap:tap0", n.uri)
		}
		cfg, err := parseTap(n.query)
		if err != nil {
			return fmt.Errorf("tap:%s: %w", n.rest, err)
		}
		if len(configs) > 0 && cfg.threaded != configs[0].threaded {
			return fmt.Errorf("tap:%s: mode is the same for all that are opened together", n.rest)
		}
		configs = append(configs, cfg)
	}
	s.Clock = clock.Real()
	world := sim.NewWorld(s.Clock)
	s.world, s.About = world, "TAP, a virtio device in this process"
	if configs[0].threaded {
		s.closers = append(s.closers, runThread(world))
	}
	for i, n := range names {
		port, uri, err := openOneTap(ctx, opt, s, world, n.rest, configs[i])
		if err != nil {
			return err
		}
		s.URIs = append(s.URIs, uri)
		if configs[i].threaded {
			s.Ports = append(s.Ports, port)
		} else {
			s.Ports = append(s.Ports, &steppedPort{Port: port, world: world, link: nap{world: world}})
		}
	}
	return nil
}

// openOneTap also returns the URI, with the name that the kernel has given the interface ("tap%d").
func openOneTap(ctx context.Context, opt Options, s *Set, world *sim.World, iface string, cfg tapConfig) (port *virtio.Port, name string, err error) {
	kernel, err := tap.OpenNet(iface, world)
	if err != nil {
		return nil, "", &HostError{err}
	}
	s.closers = append(s.closers, kernel.Close)
	name = "tap:" + kernel.Name()
	dev, err := virtionet.New(virtionet.Config{
		Name: name, Memory: s.Space, World: world, Net: kernel, MAC: macOf(name), MTU: cfg.mtu, Pairs: cfg.queues, Size: 1024, Hold: true,
		Timing: virtionet.Timing{Fetch: -1, Used: -1}, // it is fast enough as it is
	})
	if err != nil {
		return nil, "", err
	}
	s.closers = append(s.closers, dev.Close)
	fn := &tapFunction{Function: virtionet.NewFunction(dev, virtionet.FunctionConfig{})}
	kernel.OnGone(fn.remove)
	t, err := virtio.NewModern(ctx, fn, virtio.TransportOptions{Clock: s.Clock, Logger: opt.Logger})
	if err != nil {
		return nil, "", err
	}
	port, err = virtio.Open(ctx, t, virtio.Options{
		Space: s.Space, Clock: s.Clock, Logger: opt.Logger, Node: -1, Software: true, Features: cfg.features,
	})
	if err != nil {
		return nil, "", errors.Join(err, t.Close())
	}
	return port, name, nil
}

// tapFunction is the software device as a PCI function, which is pulled out when its interface is deleted.
type tapFunction struct {
	*virtionet.Function
	mu   sync.Mutex
	why  error // it was pulled out
	tell func(error)
}

// OnGone implements pci.GoneNotifier.
func (f *tapFunction) OnGone(tell func(error)) {
	f.mu.Lock()
	f.tell = tell
	why := f.why
	f.mu.Unlock()
	if why != nil && tell != nil {
		tell(why)
	}
}

func (f *tapFunction) remove(why error) {
	f.mu.Lock()
	f.why = fmt.Errorf("%w: %w", why, pci.ErrGone)
	why, tell := f.why, f.tell
	f.mu.Unlock()
	f.Function.Remove()
	if tell != nil {
		tell(why)
	}
}

func (f *tapFunction) BAR(n int) (pci.BAR, error) {
	w, err := f.Function.BAR(n)
	if err != nil {
		return nil, err
	}
	return w, nil
}

var (
	_ pci.Function     = (*tapFunction)(nil)
	_ pci.GoneNotifier = (*tapFunction)(nil)
	_ pci.NarrowBAR    = (*virtionet.Window)(nil)
)
