package virtio

// Laid says that the queues of a Start can be seen by whoever finds out that the device is gone.
func (p *Port) Laid() bool { return p.queues.Load() != nil }

// Understood is what the driver takes, if it is offered and there is a use for it.
const Understood = understood
