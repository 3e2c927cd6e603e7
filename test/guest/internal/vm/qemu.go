package vm

import (
	"fmt"
	"strconv"
	"strings"
)

// Program is the emulator, as Debian's package qemu-system-x86 names it.
const Program = "qemu-system-x86_64"

const (
	defaultMemory = 512 // MiB, beside what the first file system takes
	mebi          = 1 << 20
	hugePage      = 2 // MiB
	memoryStep    = 64
)

// kernelWords make the kernel boot quickly, speak on the first serial port, and end the machine when it panics. Each was measured: without
// them the boot takes half as long again, and a second more for the tests of its ciphers.
var kernelWords = []string{
	"console=ttyS0", "quiet", "loglevel=4", "panic=-1", "oops=panic", "tsc=reliable", "no_timer_check", "mitigations=off",
	"random.trust_cpu=on", "rcupdate.rcu_expedited=1", "cryptomgr.notests", "init_on_alloc=0", "apparmor=0", "audit=0", "lpj=4000000",
	"initcall_blacklist=load_system_certificate_list,crypto_kdf108_init,init_kprobe_trace",
}

// quote writes a value of one of QEMU's options: in those a comma is doubled.
func quote(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// memory is the guest's memory in MiB.
func (r *run) memory() int {
	if r.spec.Memory != 0 {
		return r.spec.Memory
	}
	// The archive and what it is unpacked to are there at once.
	m := defaultMemory + int(2*r.initrd/mebi) + r.spec.HugePages*hugePage
	return (m + memoryStep - 1) / memoryStep * memoryStep
}

// arguments is the whole command.
func (r *run) arguments() []string {
	s := r.spec
	machine := "q35,kernel-irqchip=off,vmport=off,hpet=off,i8042=off,sata=off,smbus=off,usb=off"
	var ram []string
	cpus, threads := s.CPUs, "multi"
	if s.ShareRAM {
		machine += ",memory-backend=ram"
		ram = []string{"-object", fmt.Sprintf("memory-backend-memfd,id=ram,size=%dM,share=on", r.memory())}
		if cpus == 0 {
			cpus = 1
		}
		// A device that is another process bears no two processors at once (QEMU drops or deadlocks such accesses).
		if cpus > 1 {
			threads = "single"
		}
	}
	if cpus == 0 {
		cpus = 2
	}
	words := append([]string{}, kernelWords...)
	args := append(append([]string{}, s.Wrap...), Program)
	args = append(args, "-nodefaults", "-no-user-config", "-vga", "none", "-display", "none",
		"-machine", machine, "-accel", "tcg,thread="+threads, "-cpu", "max", "-smp", strconv.Itoa(cpus), "-m", fmt.Sprintf("%dM", r.memory()))
	args = append(args, ram...)
	if s.Restarts == 0 {
		args = append(args, "-no-reboot")
	}
	if s.IOMMU {
		args = append(args, "-device", "intel-iommu,intremap=on,device-iotlb=on")
		words = append(words, "intel_iommu=on")
	}
	words = append(words, s.Cmdline...)
	args = append(args, "-kernel", r.kernel.Image, "-initrd", r.path("initrd"), "-append", strings.Join(words, " "),
		"-serial", "file:"+quote(r.path("console.txt")),
		"-qmp", "unix:"+quote(r.path(monitorSocket))+",server=on,wait=off",
		"-device", "isa-debug-exit,iobase=0xf4,iosize=0x04",
		"-device", "virtio-serial-pci,id=host,addr=1e.0,disable-legacy=on,max_ports=4")
	for i, p := range r.ports() {
		id := fmt.Sprintf("host%d", i)
		args = append(args, "-chardev", fmt.Sprintf("socket,id=%s,path=%s", id, quote(p.socket)),
			"-device", fmt.Sprintf("virtserialport,bus=host.0,chardev=%s,name=%s,nr=%d", id, p.name, i+1))
	}
	return append(args, s.QEMU...)
}
