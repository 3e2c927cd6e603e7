package pci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"bare.wire/vtop"
)

// Access is a way to a device's registers and memory.
type Access int

// Ways of access. They are never exchanged for one another silently: who wants less than an IOMMU says so.
const (
	// VFIO lets the IOMMU keep the device to the memory that it was given. The device is bound to vfio-pci.
	VFIO Access = iota
	// VFIONoIOMMU is VFIO on a machine without an IOMMU, where the administrator has allowed that: interrupts work, and the
	// device can write to all memory; a guardian process keeps that of the Space, which is physical, until it does not.
	VFIONoIOMMU
	// Sysfs maps the resource files of a device that no driver has, or reads and writes them: no interrupts (a timer stands
	// in), no protection, and a guardian process that ends the device's DMA should this one die. The Space is physical.
	Sysfs
)

func (a Access) String() string {
	switch a {
	case VFIO:
		return "vfio"
	case VFIONoIOMMU:
		return "noiommu"
	case Sysfs:
		return "sysfs"
	}
	return fmt.Sprintf("Access(%d)", int(a))
}

// OpenOptions say how functions are opened.
type OpenOptions struct {
	// Logger gets what people should know (limits that will bite, protection that is not there); nil: nothing is logged.
	Logger *slog.Logger
	Access Access
}

// Opener opens functions whose devices reach the memory of one vtop.Space: with VFIO it keeps one container for as many
// groups as the kernel accepts in it. Its methods may be called from any goroutine.
type Opener struct {
	host  *Host
	space *vtop.Space
	opt   OpenOptions
	log   *slog.Logger
	sys   kernel
	// anySpace lets sysfs access go with a Space that is not physical; only tests have a use for that.
	anySpace bool

	mu         sync.Mutex
	containers []*container
	groups     map[int]*group
	open       []closer // functions, in the order they were opened
}

type closer interface {
	Function
	address() Address
}

// NewOpener returns an Opener for functions of h. Nothing is opened yet.
func (h *Host) NewOpener(space *vtop.Space, opt OpenOptions) *Opener {
	return newOpener(h, space, opt, linux{})
}

func newOpener(h *Host, space *vtop.Space, opt OpenOptions, sys kernel) *Opener {
	log := opt.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Opener{host: h, space: space, opt: opt, log: log, sys: sys, groups: map[int]*group{}}
}

// Open opens the function at a, which until Close is the caller's alone. Its errors say what to do next.
//
// Besides Function, what comes back has a method OnGone(func(error)), see GoneNotifier.
func (o *Opener) Open(ctx context.Context, a Address) (Function, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: open: %w", a, err)
	}
	if slices.ContainsFunc(o.open, func(f closer) bool { return f.address() == a }) {
		return nil, fmt.Errorf("%s: open: it is open already", a)
	}
	d, err := o.host.Device(a)
	if err != nil {
		return nil, err
	}
	var f closer
	switch o.opt.Access {
	case VFIO, VFIONoIOMMU:
		f, err = o.openVFIO(d)
	case Sysfs:
		f, err = o.openSysfs(ctx, d)
	default:
		err = fmt.Errorf("access %v: %w", o.opt.Access, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w", a, err)
	}
	o.open = append(o.open, f)
	return f, nil
}

// Close closes the functions that are still open.
func (o *Opener) Close() error {
	o.mu.Lock()
	left := slices.Clone(o.open)
	o.mu.Unlock()
	var errs []error
	for _, f := range slices.Backward(left) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// forget takes a function that has been closed off the list. The caller holds mu.
func (o *Opener) forget(f closer) {
	o.open = slices.DeleteFunc(o.open, func(g closer) bool { return g == f })
}

// GoneNotifier is a Function that notices by itself when it can no longer be used.
type GoneNotifier interface {
	// OnGone names what is called, once at most, when the function has gone: the kernel wants it back, it reported an
	// error that cannot be corrected, its registers are not there any more, its guardian has died. The error wraps
	// ErrGone. f is called from any goroutine, perhaps from one that is in the middle of an access to a register, and at
	// once when it has happened already. It must not close the function, nor wait for somebody who does.
	OnGone(f func(error))
}

// notifier keeps the reason why a function has gone and tells it, once.
type notifier struct {
	mu     sync.Mutex
	reason error
	f      func(error)
}

// OnGone implements GoneNotifier.
func (n *notifier) OnGone(f func(error)) {
	n.mu.Lock()
	n.f = f
	reason := n.reason
	if reason != nil {
		n.f = nil
	}
	n.mu.Unlock()
	if reason != nil && f != nil {
		f(reason)
	}
}

// gone notes the reason; the first counts.
func (n *notifier) gone(reason error) {
	n.mu.Lock()
	var f func(error)
	if n.reason == nil {
		n.reason, f = reason, n.f
		n.f = nil
	}
	n.mu.Unlock()
	if f != nil {
		f(reason)
	}
}
