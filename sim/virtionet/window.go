package virtionet

import (
	"encoding/binary"
	"fmt"

	"bare.wire/virtio/spec"
)

// Window is a BAR of a Function: registers of 1, 2 and 4 bytes. Offsets are in bytes, aligned to the access.
type Window struct {
	f    *Function
	n    int
	size int
}

// BAR maps base address register n, and enables it.
func (f *Function) BAR(n int) (*Window, error) {
	size := 0
	if n >= 0 && n < 6 {
		size = f.barSize(n)
	}
	if size == 0 {
		return nil, fmt.Errorf("%s: there is no BAR %d", f.Name(), n)
	}
	f.lock()
	defer f.d.w.Unlock()
	f.command |= cmdMemory
	if n == barLegacy {
		f.command |= cmdIO
	}
	binary.LittleEndian.PutUint16(f.config[cfgCommand:], f.command)
	return &Window{f, n, size}, nil
}

// Size is the length of the window in bytes.
func (w *Window) Size() int { return w.size }

// Read8 reads a register of one byte.
func (w *Window) Read8(off uint32) uint8 { return uint8(w.read(off, 1)) }

// Read16 reads a register of two bytes.
func (w *Window) Read16(off uint32) uint16 { return uint16(w.read(off, 2)) }

// Read32 reads a register of four bytes.
func (w *Window) Read32(off uint32) uint32 { return w.read(off, 4) }

// Write8 writes a register of one byte.
func (w *Window) Write8(off uint32, v uint8) { w.write(off, 1, uint32(v)) }

// Write16 writes a register of two bytes.
func (w *Window) Write16(off uint32, v uint16) { w.write(off, 2, uint32(v)) }

// Write32 writes a register of four bytes.
func (w *Window) Write32(off uint32, v uint32) { w.write(off, 4, v) }

// decoded says whether the function answers to accesses of this BAR.
func (w *Window) decoded() bool {
	bit := uint16(cmdMemory)
	if w.n == barLegacy {
		bit = cmdIO
	}
	return w.f.command&bit != 0 && !w.f.d.gone
}

func (w *Window) read(off uint32, size int) uint32 {
	w.f.lock()
	defer w.f.d.w.Unlock()
	if !w.decoded() {
		return uint32(1<<(8*size) - 1)
	}
	return w.f.load(w.n, off, size)
}

func (w *Window) write(off uint32, size int, v uint32) {
	w.f.lock()
	defer w.f.d.w.Unlock()
	if w.decoded() {
		w.f.store(w.n, off, size, v)
	}
}

// load reads a register.
func (f *Function) load(bar int, off uint32, size int) uint32 {
	switch {
	case bar == barMSIX:
		return 0 // the table is the kernel's
	case bar == barLegacy:
		return f.loadLegacy(off, size)
	case off < spec.CommonSizeReset:
		return f.loadCommon(off, size)
	case off == isrAt && size == 1:
		return f.takeISR()
	case off >= deviceAt && off+uint32(size) <= deviceAt+uint32(f.d.ConfigSize()):
		return f.loadDevice(int(off-deviceAt), size)
	}
	f.d.wrong(RegisterUndefined, -1, "%d bytes read at %#x of BAR %d", size, off, bar)
	return 0
}

// store writes a register.
func (f *Function) store(bar int, off uint32, size int, v uint32) {
	switch {
	case bar == barMSIX:
	case bar == barLegacy:
		f.storeLegacy(off, size, v)
	case off < spec.CommonSizeReset:
		f.storeCommon(off, size, v)
	case off >= notifyAt && off+uint32(size) <= notifyAt+f.notifySize():
		f.notify(off-notifyAt, size, v)
	case off >= deviceAt && off+uint32(size) <= deviceAt+uint32(f.d.ConfigSize()):
		f.storeDevice(int(off-deviceAt), size, v)
	default:
		f.d.wrong(RegisterUndefined, -1, "%d bytes written at %#x of BAR %d", size, off, bar)
	}
}

// takeISR reads the ISR status, which clears it.
func (f *Function) takeISR() uint32 {
	v := f.isr
	f.isr = 0
	return uint32(v)
}

// loadDevice reads the device configuration. A driver may take it in pieces of any size that is a field's, or smaller.
func (f *Function) loadDevice(off, size int) uint32 {
	var b [4]byte
	f.d.ReadConfig(off, b[:size])
	return binary.LittleEndian.Uint32(b[:])
}

func (f *Function) storeDevice(off, size int, v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	f.d.WriteConfig(off, b[:size])
}

// notifyOff is queue_notify_off of queue i: not its number, which nothing says it is.
func (f *Function) notifyOff(i int) int { return len(f.setup) - 1 - i }

// notify is a write to the notification addresses (§4.1.5.2).
func (f *Function) notify(off uint32, size int, v uint32) {
	data := f.d.agreed&spec.FeatureNotificationData != 0
	want := 2
	if data {
		want = 4
	}
	if size != want {
		f.d.wrong(RegisterWidth, -1, "notification of %d bytes, want %d", size, want)
		return
	}
	i := int(v & 0xFFFF)
	if f.d.agreed&spec.FeatureNotifConfigData != 0 {
		i = f.queueOfData(i)
	}
	if i < 0 || i >= len(f.setup) || int(off) != f.notifyOff(i)*f.cfg.Multiplier {
		f.d.wrong(NotifyAddress, -1, "%#x written at %#x", v, off)
		return
	}
	if data {
		f.d.KickAt(i, uint16(v>>16))
		return
	}
	f.d.Kick(i)
}

// notifyData is queue_notif_config_data of queue i.
func (f *Function) notifyData(i int) int { return 0x100 + i }

func (f *Function) queueOfData(v int) int { return v - 0x100 }
