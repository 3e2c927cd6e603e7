package account

// Jitter is the interarrival jitter of RFC 3550 (§6.4.1, integer form of appendix A.8). The zero value is ready.
type Jitter struct {
	scaled  int64 // 16 times the estimate
	transit int64
	started bool
}

// Add takes an arrival: when it was sent and received, ns. The two clocks may differ by any constant.
func (j *Jitter) Add(sent, received int64) {
	transit := received - sent
	if !j.started {
		j.transit, j.started = transit, true
		return
	}
	d := transit - j.transit
	j.transit = transit
	if d < 0 {
		d = -d
	}
	j.scaled += d - (j.scaled+8)>>4
}

// Nanos is the estimate, ns.
func (j *Jitter) Nanos() int64 { return j.scaled >> 4 }

// SendLog remembers when the latest bursts were sent, so that at the end the frames that are too young to have arrived
// can be told from lost ones.
type SendLog struct {
	bursts [1 << 13]struct {
		at    int64
		count uint64 // frames sent before this burst
	}
	n uint64
}

// Burst notes that a burst begins at time at (ns), count frames having been sent before it.
func (l *SendLog) Burst(at int64, count uint64) {
	b := &l.bursts[l.n%uint64(len(l.bursts))]
	b.at, b.count = at, count
	l.n++
}

// SentAfter is how many of sent frames left after time t (ns). What the log no longer holds left before.
func (l *SendLog) SentAfter(t int64, sent uint64) uint64 {
	after := uint64(0)
	for i := l.n; i > 0 && l.n-i < uint64(len(l.bursts)); i-- {
		b := &l.bursts[(i-1)%uint64(len(l.bursts))]
		if b.at <= t {
			break
		}
		after = sent - b.count
	}
	return after
}
