package report

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ThisHost reads what it can of the machine below root ("/"); what cannot be read stays empty.
func ThisHost(root string) Host {
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(root, name)) // best effort: the run does not depend on it
		return string(b)
	}
	h := Host{
		CPUs: runtime.NumCPU(), Go: runtime.Version(), Arch: runtime.GOARCH,
		Kernel:      strings.TrimSpace(read("proc/sys/kernel/osrelease")),
		Clocksource: strings.TrimSpace(read("sys/devices/system/clocksource/clocksource0/current_clocksource")),
	}
	for line := range strings.Lines(read("proc/cpuinfo")) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			if h.CPU == "" {
				h.CPU = strings.TrimSpace(value)
			}
		case "flags":
			h.Virtualised = h.Virtualised || strings.Contains(value+" ", " hypervisor ")
		}
	}
	return h
}
