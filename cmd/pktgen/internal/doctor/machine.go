package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func (e *exam) kernel() {
	release := e.read("/proc/sys/kernel/osrelease")
	if release == "" {
		e.warn("kernel", "mount -t proc proc /proc", "/proc does not say which kernel this is")
		return
	}
	e.ok("kernel", "Linux %s, %s", release, e.Arch)
}

// processor looks at what /proc/cpuinfo says of the first processor.
func (e *exam) processor() {
	model, flags, n := "unknown", []string(nil), 0
	for line := range strings.Lines(e.read("/proc/cpuinfo")) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "processor":
			n++
		case "model name":
			model = strings.TrimSpace(value)
		case "flags":
			flags = strings.Fields(value)
		}
	}
	if slices.Contains(flags, "hypervisor") {
		e.warn("cpu", "for figures that count, use a machine of its own", "%s, %d processors, in a virtual machine: others share it", model, n)
		return
	}
	e.ok("cpu", "%s, %d processors", model, n)
}

// clocksource: others than these cost a trap or a bus access for every reading of the time.
func (e *exam) clocksource() {
	const dir = "/sys/devices/system/clocksource/clocksource0/"
	name := e.read(dir + "current_clocksource")
	switch name {
	case "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page":
		e.ok("clock", "%s", name)
		return
	case "":
		e.warn("clock", "", "the kernel does not say where it has its time from")
		return
	}
	fix := "boot a kernel that trusts the processor's counter (see: sudo dmesg | grep -i tsc)"
	for _, better := range []string{"tsc", "kvm-clock"} {
		if slices.Contains(strings.Fields(e.read(dir+"available_clocksource")), better) {
			fix = "echo " + better + " | sudo tee " + dir + "current_clocksource"
			break
		}
	}
	e.warn("clock", fix, "%s: slow to read, and every frame's time is read", name)
}

// processors: who else may use them, and how fast they run.
func (e *exam) processors() {
	const dir = "/sys/devices/system/cpu/"
	if governor := e.governor(); governor != "" && governor != "performance" {
		e.warn("governor", "sudo cpupower frequency-set -g performance", "%s: processors change their speed while a run is going on", governor)
	} else if governor != "" {
		e.ok("governor", "%s", governor)
	}
	if e.read(dir+"smt/active") == "1" {
		e.warn("smt", "echo off | sudo tee "+dir+"smt/control", "two threads share each core and slow each other down")
	}
	if isolated := e.read(dir + "isolated"); isolated != "" {
		e.ok("isolated", "processors %s; run pktgen on them: taskset -c %s pktgen ...", isolated, isolated)
	} else {
		e.ok("isolated", "no processors are kept free of other work (isolcpus= on the kernel's command line would)")
	}
}

// governor is the first one that is not performance, "" when the kernel does not govern.
func (e *exam) governor() string {
	found := ""
	for _, cpu := range e.names("/sys/devices/system/cpu") {
		if g := e.read(filepath.Join("/sys/devices/system/cpu", cpu, "cpufreq/scaling_governor")); g != "" {
			found = g
			if g != "performance" {
				break
			}
		}
	}
	return found
}

func (e *exam) hugePages() {
	free := map[string]int{}
	var words []string
	const nodes = "/sys/devices/system/node"
	dirs := map[string]string{"": "/sys/kernel/mm/hugepages"}
	for _, node := range e.names(nodes) {
		if n, ok := strings.CutPrefix(node, "node"); ok && e.there(filepath.Join(nodes, node, "hugepages")) {
			delete(dirs, "") // the sum of the nodes
			dirs["node "+n+": "] = filepath.Join(nodes, node, "hugepages")
		}
	}
	for _, label := range sortedKeys(dirs) {
		for _, size := range []string{"1048576kB", "2048kB"} {
			n, err := strconv.Atoi(e.read(filepath.Join(dirs[label], "hugepages-"+size, "free_hugepages")))
			if err == nil && n > 0 {
				free[size] += n
				words = append(words, fmt.Sprintf("%s%d free of %s", label, n, size))
			}
		}
	}
	if len(words) > 0 {
		e.ok("hugepages", "%s", strings.Join(words, ", "))
		return
	}
	text := "none free; software cards and VFIO with an IOMMU do without, more slowly"
	if e.needs.hugePages {
		text = "none free, and a card without an IOMMU needs memory whose physical address does not change"
	}
	e.lacks(e.needs.hugePages, "hugepages", "echo 64 | sudo tee /proc/sys/vm/nr_hugepages", "%s", text)
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lockedNeed is how much memory a run with default pools has mapped for the card, bytes.
const lockedNeed = 64 << 20

// lockedMemory: memory that VFIO maps counts against RLIMIT_MEMLOCK, except for the privileged.
func (e *exam) lockedMemory() {
	var limit string
	for line := range strings.Lines(e.read("/proc/self/limits")) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok && len(strings.Fields(rest)) > 0 {
			limit = strings.Fields(rest)[0]
		}
	}
	n, err := strconv.ParseInt(limit, 10, 64)
	switch {
	case limit == "unlimited" || err == nil && n >= lockedNeed:
		e.ok("memlock", "%s", bytes(limit, n))
	case limit == "":
		e.warn("memlock", "", "the limit on locked memory is not known")
	case e.Root:
		e.ok("memlock", "%s, which does not hold for root", bytes(limit, n))
	default:
		e.lacks(e.needs.vfio, "memlock", "ulimit -l "+fmt.Sprint(lockedNeed>>10)+"   (as root, before pktgen; or in /etc/security/limits.conf)",
			"%s of memory may be locked, and a card through VFIO takes about %d MiB", bytes(limit, n), lockedNeed>>20)
	}
}

func bytes(text string, n int64) string {
	if n <= 0 {
		return text
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

func (e *exam) iommu() {
	units, groups := len(e.names("/sys/class/iommu")), len(e.names("/sys/kernel/iommu_groups"))
	switch {
	case units > 0 && groups > 0:
		e.ok("iommu", "%d units, %d groups", units, groups)
	case units > 0:
		e.lacks(e.needs.iommu, "iommu", "reboot with intel_iommu=on (or amd_iommu=on) on the kernel's command line", "there is one, and it watches no device")
	case strings.Contains(" "+e.read("/proc/cmdline")+" ", "intel_iommu=on"):
		e.lacks(e.needs.iommu, "iommu", "switch on VT-d in the firmware", "none, although the kernel is told to use it")
	default:
		e.lacks(e.needs.iommu, "iommu", "switch on VT-d or AMD-Vi in the firmware and reboot with intel_iommu=on; or drive the card with ?access=sysfs",
			"none switched on: a real card cannot be driven safely")
	}
}

// vfio: the driver is there, or can be loaded.
func (e *exam) vfio() {
	release := e.read("/proc/sys/kernel/osrelease")
	modules := filepath.Join("/lib/modules", release)
	switch {
	case e.there("/sys/bus/pci/drivers/vfio-pci"):
		e.ok("vfio", "vfio-pci is there")
	case release != "" && (strings.Contains(e.read(modules+"/modules.dep"), "/vfio-pci.ko") || strings.Contains(e.read(modules+"/modules.builtin"), "/vfio-pci.ko")):
		e.lacks(e.needs.vfio, "vfio", "sudo modprobe vfio-pci", "vfio-pci is not loaded")
	default:
		e.lacks(e.needs.vfio, "vfio", "install the kernel's extra modules, or drive the card with ?access=sysfs", "this kernel has no vfio-pci")
	}
}

// vfioNode: whoever drives a card through VFIO opens it first.
func (e *exam) vfioNode() {
	const node = "/dev/vfio/vfio"
	switch {
	case !e.there(node):
		if e.needs.vfio {
			e.lacks(true, "vfio node", "sudo modprobe vfio-pci", "%s is not there", node)
		}
	case unix.Access(e.Host.Path(node), unix.R_OK|unix.W_OK) != nil:
		e.lacks(e.needs.vfio, "vfio node", "sudo chmod 0666 "+node+"   (opening it gives away nothing without a group)", "%s does not open for you", node)
	default:
		e.ok("vfio node", "%s opens", node)
	}
}

func (e *exam) tun() {
	const node = "/dev/net/tun"
	switch {
	case !e.there(node):
		e.lacks(e.needs.tun, "tun", "sudo modprobe tun", "%s is not there: no tap devices", node)
	case unix.Access(e.Host.Path(node), unix.R_OK|unix.W_OK) != nil:
		e.lacks(e.needs.tun, "tun", "run as root", "%s does not open for you", node)
	default:
		e.ok("tun", "%s opens", node)
	}
}
