package nic82599

// late is a bit that shows some time after its cause, or after a few reads of it: a driver that polls without a clock gets
// there too.
type late struct {
	at    int64 // ns
	reads int
}

// start begins to wait for d, or for the given number of reads; 0 reads: time only.
func (l *late) start(now, d int64, reads int) { l.at, l.reads = now+d, reads }

// poll says, at a read, whether the bit shows.
func (l *late) poll(now int64) bool {
	if now >= l.at {
		return true
	}
	if l.reads > 0 {
		if l.reads--; l.reads == 0 {
			l.at = now
		}
	}
	return false
}

// never makes the bit never show.
func (l *late) never() { l.at, l.reads = 1<<62, 0 }
