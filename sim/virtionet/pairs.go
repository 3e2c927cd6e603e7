package virtionet

// SetPairs says how many pairs of queues are in use where no control queue does: a vhost-user front end enables queues one by
// one. DRIVER_OK sets the number back to 1. The caller holds the lock.
func (d *Device) SetPairs(n int) { d.pairs = min(max(n, 1), d.cfg.Pairs) }
