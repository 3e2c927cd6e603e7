package virtionet

import (
	"bare.wire/virtio/spec"
)

// register is a field of the common configuration structure: its width, and whether a driver may write it.
type register struct {
	off, width uint32
	write      bool
}

// common is the common configuration structure (§4.1.4.3). Fields of 8 bytes are two of 4.
var common = []register{
	{spec.CommonDeviceFeatureSelect, 4, true},
	{spec.CommonDeviceFeature, 4, false},
	{spec.CommonDriverFeatureSelect, 4, true},
	{spec.CommonDriverFeature, 4, true},
	{spec.CommonConfigVector, 2, true},
	{spec.CommonNumQueues, 2, false},
	{spec.CommonStatus, 1, true},
	{spec.CommonGeneration, 1, false},
	{spec.CommonQueueSelect, 2, true},
	{spec.CommonQueueSize, 2, true},
	{spec.CommonQueueVector, 2, true},
	{spec.CommonQueueEnable, 2, true},
	{spec.CommonQueueNotifyOff, 2, false},
	{spec.CommonQueueDesc, 4, true},
	{spec.CommonQueueDesc + 4, 4, true},
	{spec.CommonQueueDriver, 4, true},
	{spec.CommonQueueDriver + 4, 4, true},
	{spec.CommonQueueDevice, 4, true},
	{spec.CommonQueueDevice + 4, 4, true},
	{spec.CommonQueueNotifyData, 2, false},
	{spec.CommonQueueReset, 2, true},
}

// fits says whether an access is one of a whole register.
func (f *Function) fits(off uint32, size int, write bool) bool {
	for _, r := range common {
		if r.off != off {
			continue
		}
		switch {
		case int(r.width) != size:
			f.d.wrong(RegisterWidth, -1, "%d bytes at %#x of the common configuration, want %d", size, off, r.width)
			return false
		case write && !r.write:
			f.d.wrong(RegisterReadOnly, -1, "offset %#x of the common configuration", off)
			return false
		}
		return true
	}
	f.d.wrong(RegisterWidth, -1, "%d bytes at %#x of the common configuration, where no field begins", size, off)
	return false
}

// queue is the selected one, nil if there is none of that number.
func (f *Function) queue() *queueSetup {
	if f.selected >= len(f.setup) || f.d.QueueMax(f.selected) == 0 {
		return nil
	}
	return &f.setup[f.selected]
}

func half(v uint64, off, base uint32) uint32 { return uint32(v >> ((off - base) * 8)) }

func setHalf(v *uint64, off, base, to uint32) {
	shift := (off - base) * 8
	*v = *v&^(0xFFFF_FFFF<<shift) | uint64(to)<<shift
}

// loadCommon reads a field of the common configuration.
func (f *Function) loadCommon(off uint32, size int) uint32 {
	if !f.fits(off, size, false) {
		return 0
	}
	switch off {
	case spec.CommonDeviceFeatureSelect:
		return f.devSelect
	case spec.CommonDeviceFeature:
		return word(uint64(f.d.Features()), f.devSelect)
	case spec.CommonDriverFeatureSelect:
		return f.drvSelect
	case spec.CommonDriverFeature:
		return word(f.driverFeatures, f.drvSelect)
	case spec.CommonConfigVector:
		return uint32(f.configVector)
	case spec.CommonNumQueues:
		return uint32(f.d.Queues())
	case spec.CommonStatus:
		return uint32(f.d.Status())
	case spec.CommonGeneration:
		return uint32(f.d.Generation())
	case spec.CommonQueueSelect:
		return uint32(f.selected)
	}
	return f.loadQueue(off)
}

// loadQueue reads a field that is the selected queue's; all of them are 0 where there is none.
func (f *Function) loadQueue(off uint32) uint32 {
	q := f.queue()
	if q == nil {
		return 0
	}
	switch off {
	case spec.CommonQueueSize:
		return uint32(q.size)
	case spec.CommonQueueVector:
		return uint32(q.vector)
	case spec.CommonQueueEnable:
		if f.d.QueueEnabled(f.selected) {
			return 1
		}
		return 0
	case spec.CommonQueueNotifyOff:
		return uint32(f.notifyOff(f.selected))
	case spec.CommonQueueDesc, spec.CommonQueueDesc + 4:
		return half(q.desc, off, spec.CommonQueueDesc)
	case spec.CommonQueueDriver, spec.CommonQueueDriver + 4:
		return half(q.driver, off, spec.CommonQueueDriver)
	case spec.CommonQueueDevice, spec.CommonQueueDevice + 4:
		return half(q.device, off, spec.CommonQueueDevice)
	case spec.CommonQueueNotifyData:
		return uint32(f.notifyData(f.selected))
	case spec.CommonQueueReset:
		if q.resetting { // it shows once
			q.resetting = false
			return 1
		}
	}
	return 0
}

// word is 32 bits of a set of features.
func word(v uint64, sel uint32) uint32 {
	if sel > 1 {
		return 0
	}
	return uint32(v >> (32 * sel))
}

// storeCommon writes a field of the common configuration.
func (f *Function) storeCommon(off uint32, size int, v uint32) {
	if !f.fits(off, size, true) {
		return
	}
	switch off {
	case spec.CommonDeviceFeatureSelect:
		f.devSelect = v
	case spec.CommonDriverFeatureSelect:
		f.drvSelect = v
	case spec.CommonDriverFeature:
		if f.drvSelect > 1 {
			return
		}
		shift := 32 * f.drvSelect
		f.driverFeatures = f.driverFeatures&^(0xFFFF_FFFF<<shift) | uint64(v)<<shift
		if f.d.status&spec.StatusFeaturesOK != 0 {
			f.d.wrong(FeaturesLate, -1, "%#x written to word %d", v, f.drvSelect)
		}
	case spec.CommonConfigVector:
		f.configVector = f.takeVector(v)
	case spec.CommonStatus:
		f.storeStatus(uint8(v))
	case spec.CommonQueueSelect:
		f.selected = int(v)
	default:
		f.storeQueue(off, v)
	}
}

// storeStatus writes the status byte of the modern interface.
func (f *Function) storeStatus(v uint8) {
	if v == 0 {
		f.d.SetStatus(0)
		f.resetRegisters()
		return
	}
	if v&spec.StatusFeaturesOK != 0 && f.d.status&spec.StatusFeaturesOK == 0 {
		_ = f.d.SetFeatures(spec.Features(f.driverFeatures)) // what is wrong with them is kept, and FEATURES_OK will not stick
	}
	f.d.SetStatus(v)
}

// storeQueue writes a field that is the selected queue's.
func (f *Function) storeQueue(off, v uint32) {
	q := f.queue()
	if q == nil {
		f.d.wrong(QueueNumber, -1, "%d selected", f.selected)
		return
	}
	if f.d.QueueEnabled(f.selected) && off != spec.CommonQueueReset && off != spec.CommonQueueVector && off != spec.CommonQueueEnable {
		f.d.wrong(QueueChanged, f.selected, "offset %#x written while it is enabled", off)
		return
	}
	switch off {
	case spec.CommonQueueSize:
		q.size = uint16(v)
		if int(v) > f.d.QueueMax(f.selected) || v == 0 {
			f.d.wrong(QueueSize, f.selected, "%d of at most %d", v, f.d.QueueMax(f.selected))
		}
	case spec.CommonQueueVector:
		q.vector = f.takeVector(v)
	case spec.CommonQueueDesc, spec.CommonQueueDesc + 4:
		setHalf(&q.desc, off, spec.CommonQueueDesc, v)
	case spec.CommonQueueDriver, spec.CommonQueueDriver + 4:
		setHalf(&q.driver, off, spec.CommonQueueDriver, v)
	case spec.CommonQueueDevice, spec.CommonQueueDevice + 4:
		setHalf(&q.device, off, spec.CommonQueueDevice, v)
	case spec.CommonQueueEnable:
		f.enable(q, v)
	case spec.CommonQueueReset:
		f.resetQueue(q, v)
	}
}

// enable is a write to queue_enable.
func (f *Function) enable(q *queueSetup, v uint32) {
	switch {
	case v != 1:
		f.d.wrong(QueueDisabled, f.selected, "%d", v)
	case f.d.QueueEnabled(f.selected):
		f.d.wrong(QueueChanged, f.selected, "enabled twice")
	case f.d.status&spec.StatusFeaturesOK == 0:
		f.d.wrong(StatusOrder, f.selected, "queue enabled with status %#02x", f.d.status)
	default:
		if f.d.SetQueue(f.selected, int(q.size), q.desc, q.driver, q.device) == nil {
			f.d.EnableQueue(f.selected, true)
		}
	}
}

// resetQueue is a write to queue_reset (§2.6.1).
func (f *Function) resetQueue(q *queueSetup, v uint32) {
	if v != 1 || f.d.agreed&spec.FeatureRingReset == 0 {
		f.d.wrong(QueueDisabled, f.selected, "%d written to queue_reset", v)
		return
	}
	f.d.ResetQueue(f.selected)
	*q = queueSetup{size: uint16(f.d.QueueMax(f.selected)), vector: spec.NoVector, resetting: true}
}

// legacyConfig is where the device configuration begins in the legacy BAR: MSI-X, while it is enabled, moves it (§4.1.4.10).
func (f *Function) legacyConfig() uint32 {
	if f.msixOn() {
		return spec.LegacyConfigMSIX
	}
	return spec.LegacyConfig
}

// legacyRegisters are the registers in front of the device configuration.
var legacyRegisters = []register{
	{spec.LegacyDeviceFeatures, 4, false},
	{spec.LegacyDriverFeatures, 4, true},
	{spec.LegacyQueuePFN, 4, true},
	{spec.LegacyQueueSize, 2, false},
	{spec.LegacyQueueSelect, 2, true},
	{spec.LegacyQueueNotify, 2, true},
	{spec.LegacyStatus, 1, true},
	{spec.LegacyISR, 1, false},
	{spec.LegacyConfigVector, 2, true},
	{spec.LegacyQueueVector, 2, true},
}

// legacyAccess finds out what an access to the legacy BAR is to: a register, or the device configuration from off on.
func (f *Function) legacyAccess(off uint32, size int, write bool) (reg, config bool) {
	if f.d.status&spec.StatusFeaturesOK == 0 {
		f.d.UseLegacy(true)
	}
	if at := f.legacyConfig(); off >= at {
		if off-at+uint32(size) > uint32(f.d.ConfigSize()) {
			f.d.wrong(RegisterUndefined, -1, "%d bytes at %#x of the legacy interface", size, off)
			return false, false
		}
		return false, true
	}
	for _, r := range legacyRegisters {
		if r.off == off && int(r.width) == size && (r.write || !write) {
			return true, false
		}
	}
	f.d.wrong(RegisterWidth, -1, "%d bytes at %#x of the legacy interface, written: %t", size, off, write)
	return false, false
}

// loadLegacy reads from the legacy interface.
func (f *Function) loadLegacy(off uint32, size int) uint32 {
	reg, config := f.legacyAccess(off, size, false)
	if config {
		return f.loadDevice(int(off-f.legacyConfig()), size)
	}
	if !reg {
		return 0
	}
	switch off {
	case spec.LegacyDeviceFeatures:
		return uint32(f.d.Features())
	case spec.LegacyDriverFeatures:
		return uint32(f.driverFeatures)
	case spec.LegacyQueueSelect:
		return uint32(f.selected)
	case spec.LegacyStatus:
		return uint32(f.d.Status())
	case spec.LegacyISR:
		return f.takeISR()
	case spec.LegacyConfigVector:
		return uint32(f.configVector)
	}
	q := f.queue()
	switch {
	case q == nil:
		return 0
	case off == spec.LegacyQueuePFN:
		return q.pfn
	case off == spec.LegacyQueueSize:
		return uint32(f.d.QueueMax(f.selected))
	case off == spec.LegacyQueueVector:
		return uint32(q.vector)
	}
	return 0
}

// storeLegacy writes to the legacy interface.
func (f *Function) storeLegacy(off uint32, size int, v uint32) {
	reg, config := f.legacyAccess(off, size, true)
	if config {
		f.storeDevice(int(off-f.legacyConfig()), size, v)
		return
	}
	if !reg {
		return
	}
	switch off {
	case spec.LegacyDriverFeatures:
		f.driverFeatures = uint64(v)
		_ = f.d.SetFeatures(spec.Features(v)) // what is wrong with them is kept, and left out at DRIVER_OK
	case spec.LegacyQueueSelect:
		f.selected = int(v)
	case spec.LegacyQueueNotify:
		f.d.Kick(int(v))
	case spec.LegacyStatus:
		f.d.SetStatus(uint8(v))
		if v == 0 {
			f.resetRegisters()
		}
	case spec.LegacyConfigVector:
		f.configVector = f.takeVector(v)
	default:
		f.storeLegacyQueue(off, v)
	}
}

// storeLegacyQueue writes a register that is the selected queue's.
func (f *Function) storeLegacyQueue(off, v uint32) {
	q := f.queue()
	if q == nil {
		f.d.wrong(QueueNumber, -1, "%d selected", f.selected)
		return
	}
	if off == spec.LegacyQueueVector {
		q.vector = f.takeVector(v)
		return
	}
	if q.pfn = v; v == 0 {
		f.d.ResetQueue(f.selected)
		return
	}
	size := f.d.QueueMax(f.selected)
	l, err := spec.NewSplitLayout(size, spec.LegacyAlign)
	if err != nil {
		f.d.wrong(QueueSize, f.selected, "%d", size)
		return
	}
	base := uint64(v) << spec.LegacyPageShift
	if f.d.SetQueue(f.selected, size, base, base+uint64(l.Avail), base+uint64(l.Used)) == nil {
		f.d.EnableQueue(f.selected, true)
	}
}
