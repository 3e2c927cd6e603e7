package virtionet

// Counts are numbers of things that the device has done since it was made, bytes without FCS.
type Counts struct {
	TxFrames, TxBytes uint64 // taken from the driver and given to the Net; a frame to be cut is one
	TxRefused         uint64 // not sent: misuse
	RxFrames, RxBytes uint64 // given to the driver
	RxFiltered        uint64 // not wanted
	RxUnready         uint64 // arrived before DRIVER_OK, or for a queue that is not enabled
	RxNoBuffer        uint64 // lost: the backlog was full
	RxTooLong         uint64 // lost: no buffer holds them
	RxRefused         uint64 // lost: the Net gave what the driver does not take
	Kicks, Calls      uint64 // notifications, interrupts
	Commands          uint64 // of the control queue
	Announced         uint64 // requests to announce that were acknowledged
	NeedsReset        uint64 // how often the device gave up
	Failed            uint64 // how often the driver did
	DMAFaults         uint64
}

// Counts are the counts so far.
func (d *Device) Counts() Counts {
	d.w.Lock()
	defer d.w.Unlock()
	return d.count
}
