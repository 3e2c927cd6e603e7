package doctor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"bare.wire/clock"
	"bare.wire/cmd/pktgen/internal/doctor"
	"bare.wire/cmd/pktgen/schema"
	"bare.wire/pci/pcitest"
)

// ticking is a clock on which every reading takes step, and the one at reading number pause takes a pause longer.
type ticking struct {
	clock.Clock
	now, step int64
	readings  int
	pauseAt   int
	pause     int64
}

func (c *ticking) Nanos() int64 {
	c.now += c.step
	if c.readings++; c.readings == c.pauseAt {
		c.now += c.pause
	}
	return c.now
}

const card = "0000:03:00.0"

// fit is a machine on which nothing is amiss.
func fit(t *testing.T) *pcitest.Machine {
	m := pcitest.New(t)
	m.Driver("ixgbe", "8086:10fb")
	m.Add(pcitest.Card{Address: card, ID: "8086:10fb", Class: 0x020000, Driver: "vfio-pci", Group: 17, NUMA: "0\n"})
	for name, text := range map[string]string{
		"proc/sys/kernel/osrelease": "6.1.0-test\n",
		"proc/cpuinfo":              "processor : 0\nmodel name : Test\nflags : fpu\n\nprocessor : 1\nmodel name : Test\nflags : fpu\n",
		"proc/cmdline":              "quiet\n",
		"proc/self/limits":          "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         unlimited            unlimited            bytes\n",
		"proc/self/status":          "Name: x\nCpus_allowed_list:\t0-3\n",
		"proc/stat":                 "cpu  1 2 3 4 5 6 7 100 0 0\n",
		"sys/devices/system/clocksource/clocksource0/current_clocksource":            "tsc\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":                       "performance\n",
		"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":                       "performance\n",
		"sys/devices/system/cpu/isolated":                                            "2-3\n",
		"sys/devices/system/cpu/smt/active":                                          "0\n",
		"sys/devices/system/node/node0/cpulist":                                      "0-3\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages":    "64\n",
		"sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages": "0\n",
		"dev/net/tun": "",
	} {
		m.Put(name, text)
	}
	return m
}

func examine(t *testing.T, m *pcitest.Machine, root bool, uris ...string) *doctor.Report {
	t.Helper()
	r, err := doctor.Examine(t.Context(), doctor.Config{Host: m.Host(), Clock: &ticking{step: 5000}, URIs: uris, Arch: "amd64", Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// find returns the checks with a name.
func find(r *doctor.Report, name string) (list []doctor.Check) {
	for _, c := range r.Checks {
		if c.Name == name {
			list = append(list, c)
		}
	}
	return list
}

func TestNothingIsAmissOnAFitMachine(t *testing.T) {
	r := examine(t, fit(t), false, card, "sim:a", "tap:pg0")
	for _, c := range r.Checks {
		if c.Status != doctor.OK || c.Fix != "" {
			t.Errorf("%+v", c)
		}
	}
	if !r.OK {
		t.Error("not OK")
	}
}

func TestWhatIsAmissIsSaidWithWhatRemovesIt(t *testing.T) {
	withoutIOMMU := func(m *pcitest.Machine) { m.NoIOMMU(); m.Remove("sys/kernel/iommu_groups") }
	unbound := func(m *pcitest.Machine) { m.Remove("sys/bus/pci/devices/" + card + "/driver") }
	ungrouped := func(m *pcitest.Machine) { m.Remove("sys/bus/pci/devices/" + card + "/iommu_group") }
	virtio := func(device string) func(*pcitest.Machine) {
		return func(m *pcitest.Machine) {
			m.Put("sys/bus/pci/devices/"+card+"/vendor", "0x1af4\n")
			m.Put("sys/bus/pci/devices/"+card+"/device", device+"\n")
		}
	}
	for name, c := range map[string]struct {
		spoil  func(m *pcitest.Machine)
		uris   string
		check  string
		status doctor.Status
		fix    string
	}{
		"a slow clock": {func(m *pcitest.Machine) {
			m.Put("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
			m.Put("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n")
		}, "sim:", "clock", doctor.Warn, "echo tsc | sudo tee"},
		"a virtual machine":    {func(m *pcitest.Machine) { m.Put("proc/cpuinfo", "processor : 0\nflags : hypervisor\n") }, "", "cpu", doctor.Warn, "of its own"},
		"one slow processor":   {func(m *pcitest.Machine) { m.Put("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n") }, "", "governor", doctor.Warn, "cpupower"},
		"two threads a core":   {func(m *pcitest.Machine) { m.Put("sys/devices/system/cpu/smt/active", "1\n") }, "", "smt", doctor.Warn, "echo off"},
		"no huge pages":        {noHugePages, card, "hugepages", doctor.Warn, "nr_hugepages"},
		"no huge pages, sysfs": {noHugePages, card + "?access=sysfs", "hugepages", doctor.Fail, "nr_hugepages"},
		"little locked memory": {littleLocked, card, "memlock", doctor.Fail, "ulimit -l 65536"},
		"the same, software":   {littleLocked, "sim:", "memlock", doctor.Warn, "ulimit -l"},
		"no IOMMU":             {withoutIOMMU, card, "iommu", doctor.Fail, "intel_iommu=on"},
		"no IOMMU, software":   {withoutIOMMU, "sim:", "iommu", doctor.Warn, "intel_iommu=on"},
		"no IOMMU, sysfs":      {withoutIOMMU, card + "?access=sysfs", "iommu", doctor.Warn, "intel_iommu=on"},
		"no IOMMU though told": {func(m *pcitest.Machine) { withoutIOMMU(m); m.Put("proc/cmdline", "intel_iommu=on\n") }, card, "iommu", doctor.Fail, "firmware"},
		"an idle IOMMU":        {func(m *pcitest.Machine) { m.Remove("sys/kernel/iommu_groups") }, "", "iommu", doctor.Warn, "reboot"},
		"vfio-pci not loaded": {func(m *pcitest.Machine) {
			m.Remove("sys/bus/pci/drivers/vfio-pci")
			m.Put("lib/modules/6.1.0-test/modules.dep", "kernel/drivers/vfio/pci/vfio-pci.ko.xz: x\n")
		}, card, "vfio", doctor.Fail, "modprobe vfio-pci"},
		"no vfio-pci":                 {func(m *pcitest.Machine) { m.Remove("sys/bus/pci/drivers/vfio-pci") }, card, "vfio", doctor.Fail, "extra modules"},
		"no VFIO node":                {func(m *pcitest.Machine) { m.Remove("dev/vfio/vfio") }, card, "vfio node", doctor.Fail, "modprobe"},
		"no tap":                      {func(m *pcitest.Machine) { m.Remove("dev/net/tun") }, "tap:pg0", "tun", doctor.Fail, "modprobe tun"},
		"no tap, not needed":          {func(m *pcitest.Machine) { m.Remove("dev/net/tun") }, "", "tun", doctor.Warn, "modprobe tun"},
		"no such card":                {func(*pcitest.Machine) {}, "0000:09:00.0", "0000:09:00.0", doctor.Fail, "pktgen devices"},
		"no such kind":                {func(*pcitest.Machine) {}, "eth0", "eth0", doctor.Fail, "pktgen devices"},
		"another card":                {func(m *pcitest.Machine) { m.Put("sys/bus/pci/devices/"+card+"/device", "0x1572\n") }, card, card, doctor.Fail, "pktgen devices"},
		"not bound":                   {unbound, card, card, doctor.Fail, "sudo pktgen devices bind " + card},
		"not bound, no IOMMU":         {func(m *pcitest.Machine) { unbound(m); ungrouped(m) }, card + "?access=noiommu", card + "?access=noiommu", doctor.Fail, "bind " + card + " --allow-noiommu"},
		"bound, sysfs":                {func(*pcitest.Machine) {}, card + "?access=sysfs", card + "?access=sysfs", doctor.Fail, "sudo pktgen devices unbind " + card},
		"noiommu with an IOMMU":       {func(*pcitest.Machine) {}, card + "?access=noiommu", card + "?access=noiommu", doctor.Fail, "leave access=noiommu away"},
		"sysfs with an IOMMU":         {unbound, card + "?access=sysfs", card + "?access=sysfs", doctor.Fail, "devices bind " + card},
		"noiommu without root":        {func(m *pcitest.Machine) { noIOMMUGroup(m); m.Put("dev/vfio/noiommu-17", "") }, card + "?access=noiommu", card + "?access=noiommu", doctor.Fail, "sudo pktgen ..."},
		"no such access":              {func(*pcitest.Machine) {}, card + "?access=magic", card + "?access=magic", doctor.Fail, "access=sysfs"},
		"a misspelled access":         {func(*pcitest.Machine) {}, card + "?acces=sysfs", card + "?acces=sysfs", doctor.Fail, "write access=vfio"},
		"features of an 82599":        {func(*pcitest.Machine) {}, card + "?features=-mq", card + "?features=-mq", doctor.Fail, "write access=vfio"},
		"a misspelled feature":        {virtio("0x1041"), card + "?features=-mrg", card + "?features=-mrg", doctor.Fail, "mrg_rxbuf"},
		"virtio with features":        {virtio("0x1041"), card + "?features=-mrg_rxbuf", card + "?features=-mrg_rxbuf", doctor.OK, ""},
		"transitional, no root":       {virtio("0x1000"), card, card, doctor.Fail, "disable-legacy=on"},
		"transitional, no huge pages": {func(m *pcitest.Machine) { virtio("0x1000")(m); noHugePages(m) }, card, "hugepages", doctor.Fail, "nr_hugepages"},
		"sysfs without root":          {func(m *pcitest.Machine) { unbound(m); ungrouped(m) }, card + "?access=sysfs", card + "?access=sysfs", doctor.Fail, "sudo pktgen ..."},
		"no node of the group":        {func(m *pcitest.Machine) { m.Remove("dev/vfio/17") }, card, card, doctor.Fail, "sudo pktgen devices bind"},
		"in use":                      {func(m *pcitest.Machine) { m.Link("proc/812/fd/3", "/dev/vfio/17") }, card, card, doctor.Fail, "pktgen devices show " + card},
		"no socket":                   {func(*pcitest.Machine) {}, "vhost-user:/run/vm1.sock", "vhost-user:/run/vm1.sock", doctor.Fail, "other end"},
		"VFIO without an IOMMU":       {noIOMMUGroup, card, card, doctor.Fail, "?access=noiommu"},
		"a shared group": {func(m *pcitest.Machine) {
			m.Add(pcitest.Card{Address: "0000:03:00.1", ID: "8086:10fb", Class: 0x020000, Driver: "ixgbe", Group: 17, Interface: "ens2"})
		}, card, card, doctor.Fail, "IOMMU group 17"},
	} {
		t.Run(name, func(t *testing.T) {
			m := fit(t)
			c.spoil(m)
			r := examine(t, m, false, strings.Fields(c.uris)...)
			got := find(r, c.check)
			if len(got) != 1 || got[0].Status != c.status || !strings.Contains(got[0].Fix, c.fix) {
				t.Errorf("%+v; want %s, fix %q", got, c.status, c.fix)
			}
			if c.status == doctor.Fail && r.OK {
				t.Error("OK, although something is missing")
			}
			validate(t, r)
		})
	}
}

func noHugePages(m *pcitest.Machine) {
	m.Put("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "0\n")
}

func littleLocked(m *pcitest.Machine) {
	m.Put("proc/self/limits", "Max locked memory         8388608              8388608              bytes\n")
}

func noIOMMUGroup(m *pcitest.Machine) { m.Put("sys/kernel/iommu_groups/17/name", "vfio-noiommu\n") }

func TestRootIsNotHeldByTheLimitOnLockedMemory(t *testing.T) {
	m := fit(t)
	littleLocked(m)
	if r := examine(t, m, true, card); !r.OK || find(r, "memlock")[0].Status != doctor.OK {
		t.Errorf("%+v", find(r, "memlock"))
	}
}

func TestProcessorsFarFromTheCard(t *testing.T) {
	for allowed, warned := range map[string]bool{"0-3": false, "0": false, "4-7": true, "0-7": true, "3,4": true} {
		m := fit(t)
		m.Put("sys/devices/system/node/node1/cpulist", "4-7\n")
		m.Put("proc/self/status", "Cpus_allowed_list:\t"+allowed+"\n")
		r := examine(t, m, false, card)
		if got := find(r, card); (len(got) == 2) != warned || warned && !strings.Contains(got[1].Fix, "taskset -c 0-3") {
			t.Errorf("processors %s: %+v", allowed, got)
		}
	}
}

func TestASlotThatIsTooNarrow(t *testing.T) {
	m := fit(t)
	config := make([]byte, 256)
	config[6], config[0x34], config[0x40] = 0x10, 0x40, 0x10
	config[0x4c], config[0x52] = 0x82, 0x12 // could do x8 at 5 GT/s, has x1 at 5 GT/s
	m.Put("sys/bus/pci/devices/"+card+"/config", string(config))
	got := find(examine(t, m, false, card), card)
	if len(got) != 2 || !strings.Contains(got[1].Says, "1 lanes at 5000 MT/s") {
		t.Errorf("%+v", got)
	}
}

func TestTimingOfASteadyMachine(t *testing.T) {
	r, err := doctor.Examine(t.Context(), doctor.Config{Host: fit(t).Host(), Clock: &ticking{step: 30}})
	if err != nil {
		t.Fatal(err)
	}
	// Waits begin at whatever reading comes after a multiple of 10 µs, so none is later than a reading takes.
	if x := r.Timing; x.LateMax >= 30 || x.ReadCost != 30 || x.StolenMS != 0 || x.Waits < 19_000 || x.SinglePPS < 30_000_000 {
		t.Errorf("%+v", *x)
	}
}

func TestTimingOfAMachineThatPauses(t *testing.T) {
	c := &ticking{step: 30, pauseAt: 1000, pause: int64(20 * time.Millisecond)}
	r, err := doctor.Examine(t.Context(), doctor.Config{Host: fit(t).Host(), Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	got := find(r, "timing")[0]
	if r.Timing.LateMax < int64(19*time.Millisecond) || got.Status != doctor.Warn || got.Fix == "" || !r.OK {
		t.Errorf("%+v, %+v", *r.Timing, got)
	}
}

func TestAClockThatStandsStillIsAnError(t *testing.T) {
	if _, err := doctor.Examine(t.Context(), doctor.Config{Host: fit(t).Host(), Clock: clock.NewVirtual(time.Unix(0, 0))}); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := doctor.Examine(ctx, doctor.Config{Host: fit(t).Host(), Clock: &ticking{step: 1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A tree that is empty, or says nonsense, gives a report nevertheless.
func TestAMachineThatSaysNothing(t *testing.T) {
	m := fit(t)
	for _, dir := range []string{"proc", "sys", "dev"} {
		m.Remove(dir)
	}
	validate(t, examine(t, m, false))
	for _, name := range []string{"proc/cpuinfo", "proc/self/limits", "proc/stat", "proc/self/status", "sys/devices/system/node/node0/cpulist", "proc/sys/kernel/osrelease"} {
		m.Put(name, "Max locked memory\ncpu \x1b[2J x\nCpus_allowed_list: 0-999999999,a-b,-,5-1\n")
	}
	r := examine(t, m, false, card)
	validate(t, r)
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%v\n%q", err, b.String())
	}
}

func TestTextSaysWhatToDoBelowWhatIsAmiss(t *testing.T) {
	r := &doctor.Report{Checks: []doctor.Check{{Name: "a", Status: doctor.OK, Says: "fine"}, {Name: "longer", Status: doctor.Fail, Says: "not", Fix: "do it"}}}
	var b bytes.Buffer
	want := "OK    a       fine\nFAIL  longer  not\n              -> do it\n"
	if err := r.WriteText(&b); err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for i, f := range []func(io.Writer) error{r.WriteText, r.WriteJSON} {
		if f(full) == nil {
			t.Errorf("%d: no error from a full disk", i)
		}
	}
}

func validate(t *testing.T, r *doctor.Report) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := against(b.String()); err != nil {
		t.Errorf("%v\n%s", err, b.String())
	}
}

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Doctor))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("doctor.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("doctor.json")
})

// against holds JSON against the committed schema.
func against(text string) error {
	s, err := compiled()
	if err != nil {
		return err
	}
	got, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(got)
}

// The schema must be able to say no.
func TestTheSchemaRefusesAReportThatContradictsItself(t *testing.T) {
	const form = `{"schema":"pktgen.doctor/1","ok":%t,"checks":[{"name":"a","status":%q,"says":"b","fix":""}],
		"timing":{"waits":1,"late_p50_ns":0,"late_p99_ns":0,"late_max_ns":0,"read_cost_ns":0,"stolen_ms":-1,"single_pps":1}}`
	for _, c := range []struct {
		ok     bool
		status string
		valid  bool
	}{{true, "ok", true}, {true, "fail", false}, {false, "fail", true}, {false, "warn", false}, {true, "good", false}} {
		if err := against(fmt.Sprintf(form, c.ok, c.status)); (err == nil) != c.valid {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
