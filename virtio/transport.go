package virtio

import (
	"context"

	"bare.wire/virtio/spec"
)

// Transport is how the driver reaches a device: by PCI registers, modern or legacy, or over a vhost-user socket. It knows
// nothing of networks but where the configuration lies.
//
// A device answers as it likes. A Transport bounds what it waits for and returns an error that names the device and the field;
// an error that wraps nic.ErrGone says that the device is not there any more. All methods but those of a Doorbell are called
// from one goroutine at a time.
type Transport interface {
	// Name is how people call the device: "0000:00:03.0", "vhost-user:/run/pg0".
	Name() string
	// About says in a few words what is at the other end, for Info.Device: "virtio-net (modern)", "virtio-net (vhost-user)".
	About() string
	// Legacy says that the legacy interface is spoken: no FEATURES_OK, fixed ring sizes and layout, headers of 10 bytes.
	Legacy() bool

	// Reset writes 0 to the status and waits until it reads 0: the device then does no DMA. Everything is forgotten, interrupts
	// and queues too.
	Reset(ctx context.Context) error
	// Status reads the status byte; 0xff on a device that is gone is an error.
	Status() (uint8, error)
	// AddStatus sets further status bits and leaves the others.
	AddStatus(ctx context.Context, bits uint8) error

	// Features are what the device offers; SetFeatures what of it the driver takes, before spec.StatusFeaturesOK.
	Features() (spec.Features, error)
	SetFeatures(spec.Features) error

	// ReadConfig reads the device configuration (§5.1.4) from off on, all of p at one generation, and never beyond what the
	// device says it has: a short configuration is an error.
	ReadConfig(off int, p []byte) error
	// WriteConfig writes to it: the MAC address of a legacy device.
	WriteConfig(off int, p []byte) error

	// Queues is the number of virtqueues; QueueSize the most descriptors of one, which on legacy is exactly what it has; 0 means
	// that there is no such queue.
	Queues() (int, error)
	QueueSize(queue int) (int, error)
	// EnableQueue tells the device where a queue lies, and sets it going.
	EnableQueue(ctx context.Context, queue int, at QueueArea) (Doorbell, error)
	// DisableQueue takes one queue away and returns once the device no longer uses its memory (FeatureRingReset, legacy PFN,
	// vhost-user's GET_VRING_BASE). errors.ErrUnsupported where only Reset does that.
	DisableQueue(ctx context.Context, queue int) error

	// Interrupts asks for n vectors, before queues are enabled, and returns how many there are, at least 1: 0 … n−2 for
	// queues, as QueueArea.Vector says, and the last for changes of configuration; with 1 it is for everything. f is called from
	// any goroutine. A nil f switches them off; when it returns, f is not running and will not run.
	Interrupts(n int, f func(vector int)) (int, error)

	// OnGone names what is called once, from any goroutine, when the transport finds out by itself that the device is gone: an
	// unplug, a socket that closed. The error wraps nic.ErrGone.
	OnGone(f func(error))

	// Close gives the device back. Reset came before, if it could. A nil error says that the device can reach no memory from
	// here on.
	Close() error
}

// QueueArea is where a virtqueue lies and how it is to be served. Addresses are bus addresses.
type QueueArea struct {
	Size   int    // descriptors
	Desc   uint64 // descriptor table (split) or ring (packed)
	Driver uint64 // available ring, or driver event suppression
	Device uint64 // used ring, or device event suppression
	Packed bool
	Vector int // for the queue's interrupts; −1: none
	// NotificationData says that a Doorbell carries the position (FeatureNotificationData).
	NotificationData bool
}

// Doorbell tells the device that there is something in a queue. It orders all stores before it. One goroutine uses it.
type Doorbell interface {
	// Ring notifies. position is used with QueueArea.NotificationData only (§2.9): the index behind the last descriptor made
	// available in bits 0 … 14, the wrap counter in bit 15; of a split ring the whole available index.
	Ring(position uint16)
}

// PairSetter is what a Transport implements whose device has no control queue and can serve several queue pairs all the same
// (vhost-user, which enables rings one by one). Its Features have spec.FeatureMQ, which is then taken without
// spec.FeatureCtrlVQ, and its configuration says how many pairs there are.
type PairSetter interface {
	// SetPairs has the device use the first pairs of queues. It comes after spec.StatusDriverOK, with all of them enabled.
	SetPairs(ctx context.Context, pairs int) error
}
