package inventory_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"bare.wire/cmd/pktgen/internal/inventory"
	"bare.wire/cmd/pktgen/schema"
	"bare.wire/pci"
	"bare.wire/pci/pcitest"
)

const resource = `0x00000000d0000000 0x00000000d007ffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000000000000e000 0x000000000000e01f 0x0000000000040101
`

// config has PCI Express at x4, 2.5 GT/s of x8, 5 GT/s, FLR, and 64 MSI-X vectors in BAR 4.
func config() []byte {
	c := make([]byte, 256)
	c[6], c[0x34] = 0x10, 0x70
	c[0x70], c[0x71], c[0x72], c[0x74] = 0x11, 0xa0, 63, 4
	c[0xa0] = 0x10
	binary.LittleEndian.PutUint32(c[0xa4:], 1<<28)
	binary.LittleEndian.PutUint32(c[0xac:], 8<<4|2)
	binary.LittleEndian.PutUint16(c[0xb2:], 4<<4|1)
	return c
}

// machine is the one of the documentation: the card that the machine lives by, one port free, one bound, and a disk.
func machine(t *testing.T) *pcitest.Machine {
	m := pcitest.New(t)
	m.Driver("ixgbe", "8086:10fb")
	m.Driver("virtio-pci", "1af4:1041")
	m.Driver("nvme", "144d:a808")
	m.Add(pcitest.Card{Address: "0000:00:04.0", ID: "1af4:1041", Class: 0x020000, Driver: "virtio-pci", Group: 3, Interface: "eth0", Virtio: true})
	m.Add(pcitest.Card{Address: "0000:03:00.0", ID: "8086:10fb", Class: 0x020000, Driver: "ixgbe", Group: 17, NUMA: "0\n", Interface: "ens1", Resource: resource, Config: config()})
	m.Add(pcitest.Card{Address: "0000:03:00.1", ID: "8086:10fb", Class: 0x020000, Driver: "vfio-pci", Group: 18, NUMA: "0\n", Resource: resource, Config: config()[:64]})
	m.Add(pcitest.Card{Address: "0000:04:00.0", ID: "144d:a808", Class: 0x010802, Driver: "nvme", Group: 19})
	m.Put("proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask\neth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n")
	return m
}

const wantTable = `URI           DRIVER      NUMA  LINK     IN USE                      STATE     NAME
0000:00:04.0  virtio-pci  -     eth0 up  default route through eth0  in-use    Virtio 1.0 network device
0000:03:00.0  ixgbe       0     ens1 up  no                          bindable  82599ES 10-Gigabit SFI/SFP+ Network Conne...
0000:03:00.1  vfio-pci    0     -        no                          ready     82599ES 10-Gigabit SFI/SFP+ Network Conne...
sim:  in software, always there

next:
  0000:03:00.0  sudo pktgen devices bind 0000:03:00.0
  0000:03:00.1  pktgen run 0000:03:00.1
`

func TestTheTableIsAsDocumented(t *testing.T) {
	l := inventory.Make(machine(t).Host(), false)
	l.Software = []string{"sim:"}
	var b bytes.Buffer
	if err := l.WriteText(&b); err != nil || b.String() != wantTable {
		t.Errorf("%v, got:\n%s\nwant:\n%s", err, b.String(), wantTable)
	}
}

const wantDetail = `0000:03:00.0  82599ES 10-Gigabit SFI/SFP+ Network Connection (Intel Corporation)
  id          8086:10fb revision 1, subsystem 8086:0003, class 020000
  driver      ixgbe
  driven by   ixgbe
  NUMA node   0
  interface   ens1 02:00:00:00:00:01, up, link up, 10000 Mb/s, MTU 1500
  in use      no
  IOMMU       group 17: 0000:03:00.0
  BAR 0       512 KiB of memory at 0xd0000000, 64 bit, prefetchable
  BAR 2       32 B of ports at 0xe000
  PCIe        4 lanes of 8, 2500 MT/s of 5000
  interrupts  pin, MSI-X with 64 vectors in BAR 4
  reset       alone (FLR): true
  can         MSI-X, PCI Express
  state       bindable
  next        sudo pktgen devices bind 0000:03:00.0
`

func TestOneCardIsShownWhole(t *testing.T) {
	l := one(t, machine(t), "0000:03:00.0")
	var b bytes.Buffer
	if err := l.WriteDetail(&b); err != nil || b.String() != wantDetail {
		t.Errorf("%v, got:\n%s\nwant:\n%s", err, b.String(), wantDetail)
	}
}

func one(t *testing.T, m *pcitest.Machine, address string) *inventory.List {
	t.Helper()
	a, err := pci.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := inventory.One(m.Host(), a)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// validate holds JSON against the committed schema.
func validate(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Devices))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("devices.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("devices.json")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(got); err != nil {
		t.Errorf("%v\n%s", err, b.String())
	}
	return b.String()
}

func TestJSONFollowsTheSchema(t *testing.T) {
	m := machine(t)
	m.Put("sys/bus/pci/devices/0000:04:00.0/class", "nonsense\x1b[2J\n")
	l := inventory.Make(m.Host(), true)
	text := validate(t, l.WriteJSON)
	if len(l.Problems) != 1 || len(l.Devices) != 3 || strings.Contains(text, "\x1b") {
		t.Errorf("%d problems, %d devices", len(l.Problems), len(l.Devices))
	}
	for _, a := range []string{"0000:00:04.0", "0000:03:00.0", "0000:03:00.1"} {
		validate(t, one(t, m, a).WriteJSON)
	}
	empty := inventory.Make(pcitest.New(t).Host(), false)
	validate(t, empty.WriteJSON)
	var b bytes.Buffer
	if err := empty.WriteText(&b); err != nil || !strings.Contains(b.String(), "no network card") {
		t.Errorf("no card: %v\n%s", err, b.String())
	}
}

func TestTheStateOfACardFollowsFromItsSurroundings(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(m *pcitest.Machine)
		address string
		want    inventory.State
		next    string
	}{
		"free":      {func(*pcitest.Machine) {}, "0000:03:00.0", inventory.Bindable, "bind"},
		"unguarded": {func(m *pcitest.Machine) { m.Remove("sys/bus/pci/devices/0000:03:00.0/iommu_group") }, "0000:03:00.0", inventory.Bindable, "doctor 0000:03:00.0"},
		"in use":    {func(m *pcitest.Machine) { m.Link(m.InterfaceDir("0000:03:00.0")+"/master", "br0") }, "0000:03:00.0", inventory.InUse, "show"},
		"open":      {func(m *pcitest.Machine) { m.Link("proc/812/fd/3", "/dev/vfio/18") }, "0000:03:00.1", inventory.InUse, "show"},
		"shared group": {func(m *pcitest.Machine) {
			m.Add(pcitest.Card{Address: "0000:03:00.2", ID: "144d:a808", Class: 0x010802, Driver: "nvme", Group: 17})
		}, "0000:03:00.0", inventory.Shared, "show"},
		"no driver here": {func(m *pcitest.Machine) { m.Put("sys/bus/pci/devices/0000:03:00.0/device", "0x1528\n") }, "0000:03:00.0", inventory.Unsupported, "no driver"},
		"virtio, used":   {func(*pcitest.Machine) {}, "0000:00:04.0", inventory.InUse, "show"},
		"virtio, free":   {func(m *pcitest.Machine) { m.Put("proc/net/route", "") }, "0000:00:04.0", inventory.Bindable, "bind 0000:00:04.0"},
		"virtio, no net": {func(m *pcitest.Machine) { m.Put("sys/bus/pci/devices/0000:00:04.0/device", "0x1042\n") }, "0000:00:04.0", inventory.Unsupported, "no driver"},
		"without a node": {func(m *pcitest.Machine) { m.Remove("dev/vfio/18") }, "0000:03:00.1", inventory.Ready, "/dev/vfio/18 is not there"},
	} {
		m := machine(t)
		c.spoil(m)
		d := one(t, m, c.address).Devices[0]
		if d.State != c.want || !strings.Contains(d.Next, c.next) {
			t.Errorf("%s: %s, %q; want %s, %q", name, d.State, d.Next, c.want, c.next)
		}
	}
}

func TestWhatIsHiddenIsSaid(t *testing.T) {
	l := one(t, machine(t), "0000:03:00.1")
	if d := l.Devices[0].Detail; d.ConfigBytes != 64 || d.Hidden == "" {
		t.Errorf("%+v", d)
	}
	var b bytes.Buffer
	if err := l.WriteDetail(&b); err != nil || !strings.Contains(b.String(), "hidden") || strings.Contains(b.String(), "FLR") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestABARBeyondAllBoundsHasNoNegativeSize(t *testing.T) {
	m := machine(t)
	m.Put("sys/bus/pci/devices/0000:03:00.0/resource", "0x0000000000000001 0xffffffffffffffff 0x0000000000040200\n")
	l := one(t, m, "0000:03:00.0")
	if b := l.Devices[0].Detail.BARs; len(b) != 1 || b[0].Size <= 0 {
		t.Errorf("%+v", b)
	}
}

func TestAWriterThatFailsIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	l := one(t, machine(t), "0000:03:00.0")
	for name, f := range map[string]func(io.Writer) error{"text": l.WriteText, "detail": l.WriteDetail, "json": l.WriteJSON} {
		if f(full) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
