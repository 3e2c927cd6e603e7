package account

// burst is when a burst was sent and how many frames before it.
type burst struct {
	at    int64 // ns
	count uint64
}

// SendLog remembers when bursts were sent, so that at the end the frames that are too young to have arrived can be told
// from lost ones: the latest 8192 each, and of the whole run so many that they still fit, at even distances in the count of
// bursts. The zero value is ready; nothing is allocated.
type SendLog struct {
	latest [1 << 13]burst
	coarse [1 << 13]burst // every (mask+1)th burst since the first
	kept   int            // of coarse
	mask   uint64
	n      uint64 // bursts in all
}

// Burst notes that a burst begins at time at (ns), count frames having been sent before it.
func (l *SendLog) Burst(at int64, count uint64) {
	if l.n&l.mask == 0 {
		l.keep(burst{at, count})
	}
	l.latest[l.n%uint64(len(l.latest))] = burst{at, count}
	l.n++
}

// keep adds to coarse; when that is full, every other one is forgotten, and from here on half as many are kept.
func (l *SendLog) keep(b burst) {
	if l.kept == len(l.coarse) {
		l.kept /= 2
		for i := range l.kept {
			l.coarse[i] = l.coarse[2*i]
		}
		l.mask = l.mask<<1 | 1
	}
	l.coarse[l.kept] = b // the length is a power of two, so this burst's number is a multiple of the new distance too
	l.kept++
}

// SentAfter is how many of sent frames left after time t (ns). It is exact as far back as the latest 8192 bursts; before
// that it may be too large, by less than one part in 4096 of the bursts: a frame of which it is not known counts as young, so
// that none is called lost that may be on its way.
func (l *SendLog) SentAfter(t int64, sent uint64) uint64 {
	after := uint64(0)
	for i := l.n; i > 0; i-- {
		if l.n-i == uint64(len(l.latest)) {
			return sent - l.lastBy(t).count
		}
		b := &l.latest[(i-1)%uint64(len(l.latest))]
		if b.at <= t {
			break
		}
		after = sent - b.count
	}
	return after
}

// lastBy is the last burst in coarse that was sent by t, the first of the run when there is none.
func (l *SendLog) lastBy(t int64) burst {
	for i := l.kept - 1; i > 0; i-- {
		if l.coarse[i].at <= t {
			return l.coarse[i]
		}
	}
	return l.coarse[0]
}
