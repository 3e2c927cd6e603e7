package virtio

import (
	"log/slog"

	"bare.wire/clock"
	"bare.wire/virtio/spec"
	"bare.wire/vtop"
)

// Options are what Open needs beside the transport.
type Options struct {
	// Space is the bus address space that the device reaches. Pools given to Start live in it.
	Space *vtop.Space
	// Clock measures every wait. Logger gets what people should know; nil: nothing is logged.
	Clock  clock.Clock
	Logger *slog.Logger
	// Node is the NUMA node of the device and of its rings, -1 when unknown.
	Node int
	// Software says that no silicon and no hypervisor is behind the transport.
	Software bool
	// Features says what the driver may take of what the device offers; the zero value: all that it knows.
	Features spec.Restriction
	// MAC is the address that the port is to have. The zero value: the device's, or one that is made up where it has none. A
	// device that has another has to be able to change it.
	MAC [6]byte
	// Announce is called, on a goroutine of its own, when the device asks for the addresses behind the port to be announced to the
	// network: after a migration. nil: the device is told that nobody does that (spec.FeatureGuestAnnounce is not taken).
	Announce func()
}
