package cli

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"bare.wire/device"
	"bare.wire/pci/pcitest"
)

const port0, port1 = "0000:03:00.0", "0000:03:00.1"

// twoPorts is a machine with an 82599 that Linux drives.
func twoPorts(t *testing.T) *pcitest.Machine {
	m := pcitest.New(t)
	m.Driver("ixgbe", "8086:10fb")
	m.Add(pcitest.Card{Address: port0, ID: "8086:10fb", Class: 0x020000, Driver: "ixgbe", Group: 17, Interface: "ens1"})
	m.Add(pcitest.Card{Address: port1, ID: "8086:10fb", Class: 0x020000, Driver: "ixgbe", Group: 18, Interface: "ens2"})
	return m
}

// on runs pktgen on a machine.
func on(t *testing.T, m *pcitest.Machine, args ...string) (code Code, out, log string) {
	t.Helper()
	var o, l bytes.Buffer
	a := &app{out: &o, log: &l, open: device.OpenSet, host: m.Host()}
	code = a.main(t.Context(), args)
	return code, o.String(), l.String()
}

// expect fails the test unless pktgen ends like that and says that, on standard output for OK, else on standard error.
func expect(t *testing.T, m *pcitest.Machine, want Code, says string, args ...string) {
	t.Helper()
	code, out, log := on(t, m, args...)
	where := log
	if want == OK {
		where = out
	}
	if code != want || !strings.Contains(where, says) {
		t.Errorf("pktgen %s: code %d, want %d, and %q\nout: %s\nlog: %s", strings.Join(args, " "), code, want, says, out, log)
	}
}

func TestCardsAreBoundShownAndGivenBack(t *testing.T) {
	m := twoPorts(t)
	expect(t, m, OK, "bindable", "devices")
	expect(t, m, OK, port0+": vfio-pci, was with ixgbe, /dev/vfio/17\n"+port1+": vfio-pci, was with ixgbe, /dev/vfio/18\n", "devices", "bind", port0, "03:00.1")
	expect(t, m, OK, "pktgen run "+port0, "devices", "list")
	expect(t, m, OK, "/dev/vfio/17", "devices", "show", port0)
	expect(t, m, OK, "vfio-pci, as before", "devices", "bind", port0)
	expect(t, m, OK, port0+": ixgbe, was with vfio-pci, interface ens1\n", "devices", "restore", port0)
	expect(t, m, OK, port0+": no driver, was with ixgbe\n", "devices", "unbind", "ens1")
	expect(t, m, OK, port0+": ixgbe, was with no driver, interface ens1\n", "devices", "restore", port0)
}

func TestRefusalsEndWithThree(t *testing.T) {
	m := twoPorts(t)
	m.Link(m.InterfaceDir(port0)+"/master", "bond0")
	// The other port is bound all the same.
	code, out, log := on(t, m, "devices", "bind", port0, port1)
	if code != Environment || !strings.Contains(log, "ens1 is enslaved to bond0") || !strings.HasPrefix(out, port1+": vfio-pci") {
		t.Errorf("code %d\n%s%s", code, out, log)
	}
	code, out, log = on(t, m, "devices", "bind", "--force", port0)
	if code != OK || !strings.Contains(log, "by force, although it is in use: ens1 is enslaved to bond0") {
		t.Errorf("by force: code %d\n%s%s", code, out, log)
	}
	m.Link("proc/812/fd/3", "/dev/vfio/17")
	expect(t, m, Environment, "process 812", "devices", "restore", port0)
	expect(t, m, Environment, "process 812", "devices", "unbind", port0)
	expect(t, m, Environment, "nothing is there", "devices", "show", "0000:09:00.0")
}

func TestAKernelThatRefusesEndsWithThree(t *testing.T) {
	m := twoPorts(t)
	m.Refuse("unbind", syscall.EPERM)
	expect(t, m, Environment, "root may (sudo)", "devices", "bind", port0)
}

// A mistyped address changes nothing, also not the device before it.
func TestNothingIsBoundWhenOneAddressIsWrong(t *testing.T) {
	m := twoPorts(t)
	expect(t, m, Usage, "PCI address", "devices", "bind", port0, "0000:03:0")
	expect(t, m, Usage, "no card has an interface of that name", "devices", "bind", port0, "nonsense")
	expect(t, m, Usage, "see pktgen devices --help", "devices", "bnd")
	expect(t, m, Usage, "see pktgen --help", "bnd")
	expect(t, m, Usage, "no address", "devices", "bind")
	expect(t, m, Usage, "0 addresses", "devices", "show")
	expect(t, m, Usage, "unknown", "devices", "-o", "yaml")
	expect(t, m, Usage, "unknown", "devices", "show", "-o", "yaml", port0)
	expect(t, m, Usage, "unknown", "doctor", "-o", "yaml")
	expect(t, m, Usage, `--user "no such user"`, "devices", "bind", "--user", "no such user", port0)
	expect(t, m, Usage, `--group "-1"`, "devices", "bind", "--group", "-1", port0)
	expect(t, m, Usage, "no driver is called that", "devices", "bind", "--driver", "../x", port0)
	expect(t, m, Usage, "unknown command", "devices", "nonsense")
	if w := m.Writes(); len(w) != 0 {
		t.Errorf("written: %q", w)
	}
}

func TestWithoutAnIOMMUItIsSaidWhatThatMeans(t *testing.T) {
	m := pcitest.New(t)
	m.NoIOMMU()
	m.Add(pcitest.Card{Address: port0, ID: "8086:10fb", Class: 0x020000, Group: pcitest.NoGroup})
	m.Put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
	expect(t, m, Environment, "--allow-noiommu", "devices", "bind", port0)
	code, out, log := on(t, m, "devices", "bind", "--allow-noiommu", port0)
	if code != OK || !strings.Contains(log, "overwrite any memory") || !strings.Contains(out, "noiommu-99") {
		t.Errorf("code %d\n%s%s", code, out, log)
	}
	expect(t, m, OK, "pktgen run "+port0+"?access=noiommu", "devices")
}

func TestTheOwnerOfTheNodeCanBeANumberOrAName(t *testing.T) {
	o, err := owner("0", "0")
	if err != nil || o.UID != 0 || o.GID != 0 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := owner("root", ""); err != nil || o.UID != 0 || o.GID != -1 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := owner("", ""); err != nil || o != nil {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestDoctorEndsWithThreeWhenSomethingIsMissing(t *testing.T) {
	m := twoPorts(t)
	if code, out, log := on(t, m, "doctor", "sim:"); code != OK || !strings.Contains(out, "OK    sim:") || log != "" {
		t.Errorf("code %d\n%s%s", code, out, log)
	}
	for uri, says := range map[string]string{"sim:?los=1": "did you mean", "sim:c": "two ends", "0000:3:00.0": "number of digits", "ens2": port1} {
		if code, out, _ := on(t, m, "doctor", uri); code != Environment || !strings.Contains(out, "FAIL  "+uri) || !strings.Contains(out, says) {
			t.Errorf("doctor %s: code %d, want %q\n%s", uri, code, says, out)
		}
	}
	code, out, log := on(t, m, "doctor", port0)
	if code != Environment || !strings.Contains(out, "-> sudo pktgen devices bind "+port0) || log != "" {
		t.Errorf("code %d\n%s%s", code, out, log)
	}
}

func TestAFullDiskIsNoSuccess(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"devices"}, {"devices", "show", port0}, {"devices", "-o", "json"}, {"doctor"}, {"devices", "bind", port0}} {
		var log bytes.Buffer
		a := &app{out: full, log: &log, open: device.OpenSet, host: twoPorts(t).Host()}
		if code := a.main(t.Context(), args); code != Device {
			t.Errorf("%v: code %d, %s", args, code, log.String())
		}
	}
}
