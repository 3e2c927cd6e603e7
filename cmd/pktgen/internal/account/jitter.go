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
