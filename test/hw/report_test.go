package hw

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bare.wire/device"
	"bare.wire/nic"
	"bare.wire/pci"
)

// results are the situations in the order in which they ended.
var results struct {
	mu     sync.Mutex
	passed int
	lines  []string
	failed []string
}

// note has the result of t in the report.
func note(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		results.mu.Lock()
		defer results.mu.Unlock()
		_, name, _ := strings.Cut(t.Name(), "/")
		word := "passed"
		if t.Failed() {
			word = "FAILED"
			results.failed = append(results.failed, name)
		} else {
			results.passed++
		}
		results.lines = append(results.lines, word+"  "+name)
	})
}

// reported runs the tests on the card at an address, and writes the report: what the card and the machine are before, what
// happens as it happens, results and registers after it. What ends the run too early leaves a report without its last line.
func reported(m *testing.M, address string) (status int, err error) {
	flag.Parse()
	if err := flag.Set("test.v", "true"); err != nil {
		return 3, err
	}
	a, err := pci.ParseAddress(address)
	if err != nil {
		return 3, fmt.Errorf("PCI=%s: %w", address, err)
	}
	name := os.Getenv("REPORT")
	if name == "" {
		name = "barewire-hw-" + strings.ReplaceAll(a.String(), ":", "-") + ".txt"
	}
	about, err := describe(a)
	if err != nil {
		return 3, err
	}
	file, err := os.Create(name)
	if err != nil {
		return 3, err
	}
	fmt.Printf("Everything is in MAC loopback: nothing is sent out, no cable is needed (take it out to be sure). The report is %s\n\n", name)
	out := &masked{to: file, mac: about.mac}
	out.printf("Barewire on a real card: MAC loopback, nothing goes out. The last line is the result; without it, the run was cut short.\n\n%s\n== Run\n\n", about.text)
	var log strings.Builder
	status, err = teed(io.MultiWriter(out, &log), m.Run)
	out.printf("\n== Results\n\n%s\n", strings.Join(results.lines, "\n"))
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "not looked at") {
			out.printf("%s\n", strings.TrimSpace(line))
		}
	}
	for _, s := range slices.Sorted(maps.Keys(notHere)) {
		out.printf("not on one port: %s (%s)\n", s, notHere[s])
	}
	regs, derr := registers()
	out.printf("\n== Registers that a read does not change, port started in loopback; ranges have one value\n\n%s\n", regs)
	err = errors.Join(err, derr)
	verdict := fmt.Sprintf("RESULT: all %d passed", results.passed)
	switch {
	case len(results.failed) > 0:
		verdict = fmt.Sprintf("RESULT: FAILED: %s; %d passed", strings.Join(results.failed, ", "), results.passed)
	case status != 0 || err != nil:
		verdict = fmt.Sprintf("RESULT: FAILED: exit status %d, %v", status, err)
	case results.passed == 0:
		verdict, status = "RESULT: FAILED: no situation was chosen", 1
	}
	out.printf("%s\n", verdict)
	fmt.Printf("\n%s\nThe report is %s: it is meant to be sent in; the last half of MAC addresses is masked in it.\n", verdict, name)
	return status, errors.Join(err, out.err, file.Close())
}

// teed runs f with what it prints going to the report too.
func teed(to io.Writer, f func() int) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 3, err
	}
	screen := os.Stdout
	os.Stdout = w
	done := make(chan error)
	go func() {
		_, err := io.Copy(io.MultiWriter(screen, to), r)
		done <- err
	}()
	status := f()
	os.Stdout = screen
	return status, errors.Join(w.Close(), <-done, r.Close())
}

// masked writes lines in which the card's address has no last half: that is what makes it one person's.
type masked struct {
	to   io.Writer
	mac  [6]byte
	rest []byte
	err  error
}

// Write implements io.Writer. It keeps what is no line yet.
func (m *masked) Write(b []byte) (int, error) {
	m.rest = append(m.rest, b...)
	end := bytes.LastIndexByte(m.rest, '\n') + 1
	if _, err := io.WriteString(m.to, mask(string(m.rest[:end]), m.mac)); err != nil {
		m.err = errors.Join(m.err, err)
	}
	m.rest = append(m.rest[:0], m.rest[end:]...)
	return len(b), nil
}

func (m *masked) printf(format string, args ...any) { fmt.Fprintf(m, format, args...) }

// mask replaces the last half of an address, however it is spelt.
func mask(text string, mac [6]byte) string {
	if mac == [6]byte{} {
		return text
	}
	for _, sep := range []string{"", ":", "-", " "} {
		first := fmt.Sprintf("%02x%s%02x%s%02x%s", mac[0], sep, mac[1], sep, mac[2], sep)
		last := fmt.Sprintf("%02x%s%02x%s%02x", mac[3], sep, mac[4], sep, mac[5])
		text = regexp.MustCompile("(?i)"+regexp.QuoteMeta(first+last)).ReplaceAllString(text, first+"xx"+sep+"xx"+sep+"xx")
	}
	decimal := strings.Trim(fmt.Sprint(mac), "[]") // %v of an array
	return strings.ReplaceAll(text, decimal, fmt.Sprintf("%d %d %d x x x", mac[0], mac[1], mac[2]))
}

// about is what there is to say before the run.
type about struct {
	text string
	mac  [6]byte
}

// describe looks at machine and card, and opens it once. Errors say what to do next.
func describe(a pci.Address) (*about, error) {
	host := &pci.Host{}
	d, err := host.Device(a)
	if err != nil {
		return nil, fmt.Errorf("%w: \"pktgen devices\" lists the cards", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "== Card\n\n%s  %04x:%04x  subsystem %04x:%04x  revision %#02x  %s\n", d.Address, d.Vendor, d.Device, d.SubVendor, d.SubDevice, d.Revision, d.DeviceName)
	fmt.Fprintf(&b, "driver %s, access %s, NUMA node %d, IOMMU group %d, no-IOMMU %t\n", d.Driver, deviceURI(), d.NUMANode, d.Group, d.NoIOMMU)
	b.WriteString(capabilities(host, a))
	for _, why := range host.InUse(d) {
		return nil, fmt.Errorf("%s is in use: %s: \"pktgen devices bind %[1]s\" says what is in the way, and gives it to %s", a, why, pci.VFIODriver)
	}
	asFound, err := firstLook(d)
	if err != nil {
		return nil, fmt.Errorf("%w (\"pktgen doctor %s\" says what else is missing)", err, a)
	}
	b.WriteString(asFound)
	set, err := device.OpenSet(context.Background(), device.Options{}, deviceURI())
	if err != nil {
		return nil, err
	}
	i := set.Ports[0].Info()
	if err := set.Close(); err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "%s: MAC %x, %d RX and %d TX queues, RSS over %d\n\n%s", i.Device, i.MAC, i.RxQueues, i.TxQueues, i.RSSQueues, machine(d))
	return &about{b.String(), i.MAC}, nil
}

// capabilities is what the configuration space says, as far as it is shown.
func capabilities(host *pci.Host, a pci.Address) string {
	config, err := host.ReadConfigSpace(a)
	if err != nil {
		return fmt.Sprintf("configuration space: %v\n", err)
	}
	list, err := pci.Capabilities(config)
	if err != nil {
		return fmt.Sprintf("capabilities: %v\n", err)
	}
	var b strings.Builder
	if c, ok := pci.FindCapability(list, pci.CapExpress); ok {
		e, err := pci.ParseExpress(config, c)
		fmt.Fprintf(&b, "PCI Express: %+v %v\n", e, err)
	}
	if c, ok := pci.FindCapability(list, pci.CapMSIX); ok {
		x, err := pci.ParseMSIX(config, c)
		fmt.Fprintf(&b, "MSI-X: %+v %v\n", x, err)
	}
	return b.String()
}

// machine says what it runs on, without its name.
func machine(d *pci.Device) string {
	var u unix.Utsname
	release := "unknown"
	if unix.Uname(&u) == nil {
		release = unix.ByteSliceToString(u.Release[:])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "== Machine\n\n%s %s, kernel %s, %d processors, %s\n", runtime.GOOS, runtime.GOARCH, release, runtime.NumCPU(), runtime.Version())
	units, _ := os.ReadDir("/sys/class/iommu") // none: no IOMMU
	for _, u := range units {
		fmt.Fprintf(&b, "IOMMU %s\n", u.Name())
	}
	if d.Group >= 0 {
		kind, err := os.ReadFile(fmt.Sprintf("/sys/kernel/iommu_groups/%d/type", d.Group))
		fmt.Fprintf(&b, "group %d: %s", d.Group, kind)
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
		}
	}
	return b.String()
}

// registers starts the port once more, and dumps it.
func registers() (string, error) {
	set, err := device.OpenSet(context.Background(), device.Options{}, deviceURI())
	if err != nil {
		return "", err
	}
	port := set.Ports[0]
	pool, err := newPool(set)
	if err != nil {
		return "", errors.Join(err, set.Close())
	}
	text := ""
	if err = port.Start(context.Background(), nic.Config{Pool: pool, Loopback: true}); err == nil {
		err = set.Clock.Sleep(context.Background(), settleTime)
		if d, ok := port.(dumper); ok {
			text = list(d.Dump())
		}
	}
	return text, errors.Join(err, set.Close(), pool.Close())
}
