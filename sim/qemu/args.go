package qemu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// proxyDevice is QEMU's end of a function.
const proxyDevice = "x-pci-proxy-dev"

// ErrCommand is wrapped by the errors about a command line that cannot work.
var ErrCommand = errors.New("the command line of QEMU")

// Prepare checks a command line of QEMU and adds what is missing: the machine type (q35), the accelerator (TCG), RAM that can
// be shared, and no VGA. An error says what has to be changed.
func Prepare(ctx context.Context, command []string) ([]string, error) {
	if len(command) == 0 {
		return nil, fmt.Errorf("%w: empty; write -- qemu-system-x86_64 and its arguments", ErrCommand)
	}
	added, err := check(command[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("%s cannot be run (%w); on Debian: apt-get install qemu-system-x86", command[0], err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	help, err := exec.CommandContext(ctx, path, "-device", "help").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s -device help: %w: %.200s", command[0], err, help)
	}
	if !strings.Contains(string(help), `"`+proxyDevice+`"`) {
		return nil, fmt.Errorf("%s has no device %s: it was built without multi-process support; Debian's qemu-system-x86 has it", command[0], proxyDevice)
	}
	return slices.Concat([]string{path}, command[1:], added), nil
}

// option is one of QEMU's options with its value, "" for none.
type option struct{ name, value string }

// options are all that look like one. An option without a value gets the word after it, which does no harm.
func options(args []string) (list []option) {
	for i, a := range args {
		name, ok := strings.CutPrefix(a, "-")
		if !ok {
			continue
		}
		o := option{name: strings.TrimPrefix(name, "-")}
		if i+1 < len(args) {
			o.value = args[i+1]
		}
		if o.name == "M" {
			o.name = "machine"
		}
		list = append(list, o)
	}
	return list
}

// keys splits "a,b=c,d=e" into a map; what stands first without "=" has the key that is implied.
func keys(value, implied string) map[string]string {
	m := map[string]string{}
	for i, part := range strings.Split(strings.ReplaceAll(value, ",,", "\x00"), ",") {
		part = strings.ReplaceAll(part, "\x00", ",")
		k, v, ok := strings.Cut(part, "=")
		switch {
		case ok:
			m[k] = v
		case i == 0:
			m[implied] = part
		default:
			m[part] = "on"
		}
	}
	return m
}

// given is what a command line says about the things that matter here.
type given struct {
	machine         map[string]string // all -machine merged
	accel           map[string]string
	hasAccel        bool
	objects         map[string]map[string]string // by id
	numa            []string                     // ids of memory backends
	cpus            int
	memory          string
	vga, nodefaults bool
	hole            bool // says how large the window for BARs above 4 GiB is
}

// check returns what has to be added to args.
func check(args []string) (added []string, err error) {
	g, err := read(args)
	if err != nil {
		return nil, err
	}
	for _, f := range []func(*given) ([]string, error){checkMachine, checkAccel, checkMemory} {
		more, err := f(g)
		if err != nil {
			return nil, err
		}
		added = append(added, more...)
	}
	if !g.hole {
		// The proxy registers BARs below 4 GiB only, and a guest that deals out addresses again, after a device was pulled out, would
		// use the window above.
		added = append(added, "-global", "q35-pcihost.pci-hole64-size=0")
	}
	if !g.vga && !g.nodefaults {
		added = append(added, "-vga", "none") // its memory could not be shared
	}
	return added, nil
}

func read(args []string) (*given, error) {
	g := &given{machine: map[string]string{}, accel: map[string]string{}, objects: map[string]map[string]string{}, cpus: 1, memory: "128M"}
	for _, o := range options(args) {
		switch o.name {
		case "qtest":
			return nil, errors.New("-qtest is given, but nicsim needs QEMU's test socket itself, for interrupts: leave it out")
		case "daemonize":
			return nil, errors.New("-daemonize: QEMU has to stay nicsim's child; leave it out and let nicsim run in the background")
		case "enable-kvm":
			return nil, errKVM
		case "device":
			if k := keys(o.value, "driver"); k["driver"] == proxyDevice {
				return nil, fmt.Errorf("-device %s is given, but nicsim adds it itself: leave it out (--slot says where)", proxyDevice)
			}
		case "machine":
			for k, v := range keys(o.value, "type") {
				g.machine[k] = v
			}
		case "accel":
			g.hasAccel = true
			for k, v := range keys(o.value, "accel") {
				g.accel[k] = v
			}
		case "object":
			if k := keys(o.value, "qom-type"); k["id"] != "" {
				g.objects[k["id"]] = k
			}
		case "numa":
			if id := keys(o.value, "type")["memdev"]; id != "" {
				g.numa = append(g.numa, id)
			}
		case "m":
			g.memory = keys(o.value, "size")["size"]
		case "vga":
			g.vga = true
		case "global":
			g.hole = g.hole || strings.Contains(o.value, "pci-hole64-size")
		case "nodefaults":
			g.nodefaults = true
		case "smp":
			n, err := vcpus(o.value)
			if err != nil {
				return nil, err
			}
			g.cpus = n
		}
	}
	return g, nil
}

// vcpus is the number that -smp asks for.
func vcpus(value string) (int, error) {
	k := keys(value, "cpus")
	product, factors := 1, []string{"sockets", "dies", "cores", "threads"}
	if k["cpus"] != "" {
		factors = []string{"cpus"}
	}
	for _, f := range factors {
		if k[f] == "" {
			continue
		}
		n, err := strconv.Atoi(k[f])
		if err != nil || n < 1 || n > 4096 {
			return 0, fmt.Errorf("-smp %s: %s is not a number of CPUs", value, k[f])
		}
		product *= n
	}
	return product, nil
}

var errKVM = errors.New("KVM is asked for, but a guest with software cards runs under TCG only: with KVM their interrupts do not arrive; " +
	"write -accel tcg, or leave it out")

func checkMachine(g *given) ([]string, error) {
	switch t := g.machine["type"]; {
	case t == "":
		return []string{"-machine", "q35"}, nil
	case t != "q35" && !strings.HasPrefix(t, "pc-q35"):
		return nil, fmt.Errorf("machine type %q: interrupts are led as q35 leads them; write -M q35", t)
	}
	return nil, nil
}

// checkAccel sees to it that there is one vCPU thread: with two, QEMU's proxy blocks accesses of one while the other makes one,
// and configuration accesses of both stand still for ever.
func checkAccel(g *given) ([]string, error) {
	name := g.accel["accel"]
	if a := g.machine["accel"]; name == "" {
		name = a
	}
	if name != "" && name != "tcg" {
		return nil, errKVM
	}
	single := g.accel["thread"] == "single"
	switch {
	case g.cpus > 1 && g.hasAccel && !single:
		return nil, fmt.Errorf("%d CPUs in threads of their own: the proxy loses accesses and hangs then; write -accel tcg,thread=single, or -smp 1", g.cpus)
	case g.hasAccel || g.machine["accel"] != "" && g.cpus == 1:
		return nil, nil
	case g.machine["accel"] != "":
		return nil, fmt.Errorf("%d CPUs with -machine accel=tcg: write -accel tcg,thread=single instead", g.cpus)
	case g.cpus > 1:
		return []string{"-accel", "tcg,thread=single"}, nil
	}
	return []string{"-accel", "tcg"}, nil
}

// checkMemory sees to it that the guest's RAM is a file that can be mapped here.
func checkMemory(g *given) ([]string, error) {
	ids := g.numa
	if id := g.machine["memory-backend"]; id != "" {
		ids = append(ids, id)
	}
	for _, id := range ids {
		o, ok := g.objects[id]
		switch {
		case !ok:
			return nil, fmt.Errorf("no -object has the id %q, which is to be RAM; write -object memory-backend-memfd,id=%s,size=…,share=on", id, id)
		case o["qom-type"] != "memory-backend-memfd" && o["qom-type"] != "memory-backend-file":
			return nil, fmt.Errorf("RAM %q is a %s, which cannot be shared with the cards; write -object memory-backend-memfd,id=%s,size=…,share=on", id, o["qom-type"], id)
		case !isOn(o["share"], o["qom-type"] == "memory-backend-memfd"):
			return nil, fmt.Errorf("RAM %q is private: the cards would not see what the guest writes; add share=on", id)
		}
	}
	if len(ids) > 0 {
		return nil, nil
	}
	if g.objects[ramID] != nil {
		return nil, fmt.Errorf("an object has the id %s, which nicsim wants for the guest's RAM; give it another", ramID)
	}
	size := g.memory
	if _, err := strconv.Atoi(size); err == nil {
		size += "M"
	}
	return []string{"-object", "memory-backend-memfd,id=" + ramID + ",share=on,size=" + size, "-machine", "memory-backend=" + ramID}, nil
}

// ramID is the memory backend that is added where none is given.
const ramID = "nicsim-ram"

// findPort returns the slot of the root port that makes the bus id, and the number that the bus will have: 0 if there is none.
func findPort(command []string, id string) (slot, bus int) {
	var slots []int
	slot = -1
	for _, o := range options(command) {
		k := keys(o.value, "driver")
		if o.name != "device" || k["driver"] != "pcie-root-port" {
			continue
		}
		addr, _, _ := strings.Cut(k["addr"], ".")
		n, err := strconv.ParseInt(addr, 16, 8) // QEMU reads it so, with or without 0x
		if hex, ok := strings.CutPrefix(addr, "0x"); ok {
			n, err = strconv.ParseInt(hex, 16, 8)
		}
		if err != nil || n < 0 || n > 31 {
			continue
		}
		slots = append(slots, int(n))
		if k["id"] == id {
			slot = int(n)
		}
	}
	if slot < 0 {
		return 0, 0
	}
	slices.Sort(slots)
	return slot, 1 + slices.Index(slots, slot)
}

// isOn reads a boolean of QEMU's; def is its value when it is not given.
func isOn(v string, def bool) bool {
	if v == "" {
		return def
	}
	return v == "on" || v == "true" || v == "yes" || v == "y"
}
