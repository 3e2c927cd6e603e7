// Package doctor looks at a machine and says what stands in the way of a run, each with the command that removes it.
//
//	Config (the machine, a clock, device URIs) -> Examine -> Report -> WriteText, WriteJSON (schema pktgen.doctor/1)
//
// What is needed depends on the devices that are named: without an IOMMU a real card cannot be driven through VFIO, and a run
// between software cards does not care. What a named device needs and is not there is a Fail; what could be better, or would be
// needed by devices that are not named, is a Warn. Everything is read from sysfs and procfs; no card is opened, and nothing
// changed.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"bare.wire/clock"
	"bare.wire/device"
	"bare.wire/pci"
)

// Schema names the form of the JSON.
const Schema = "pktgen.doctor/1"

// Status is how a check ended.
type Status string

// Statuses.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one line of the report.
type Check struct {
	Name   string `json:"name"` // what was looked at: a word, or the URI of a device
	Status Status `json:"status"`
	Says   string `json:"says"` // what was found
	Fix    string `json:"fix"`  // a command, or what to do; "" when nothing needs to be
}

// Report is what the doctor found.
type Report struct {
	Schema string  `json:"schema"`
	OK     bool    `json:"ok"` // no check failed
	Checks []Check `json:"checks"`
	Timing *Timing `json:"timing"`
}

// Config says what is examined.
type Config struct {
	Host  *pci.Host
	Clock clock.Clock // for the timing self-test
	URIs  []string    // devices that a run would use
	// Arch is the machine's architecture, as in runtime.GOARCH; Root says that the caller may do everything.
	Arch string
	Root bool
	// Software opens a software device and closes it; nil: it is not tried.
	Software func(ctx context.Context, uri string) error
}

// exam is an examination that is going on.
type exam struct {
	Config
	Report
	needs needs
}

// needs are the things that the named devices cannot do without.
type needs struct{ vfio, iommu, hugePages, tun bool }

// Examine makes all checks. The error is ctx's, or that of a clock that stands still.
func Examine(ctx context.Context, c Config) (*Report, error) {
	e := &exam{Config: c, Report: Report{Schema: Schema, Checks: []Check{}}}
	for _, uri := range c.URIs {
		e.needs.add(uri)
		e.needs.hugePages = e.needs.hugePages || e.physical(uri)
	}
	for _, check := range []func(){
		e.kernel, e.processor, e.clocksource, e.processors, e.hugePages, e.lockedMemory, e.iommu, e.vfio, e.vfioNode, e.tun,
	} {
		check()
	}
	for _, uri := range c.URIs {
		e.device(ctx, uri)
	}
	if err := e.timing(ctx); err != nil {
		return nil, err
	}
	e.OK = true
	for _, check := range e.Checks {
		e.OK = e.OK && check.Status != Fail
	}
	return &e.Report, nil
}

// add notes what a device needs.
func (n *needs) add(uri string) {
	head, query, _ := strings.Cut(uri, "?")
	if _, err := pci.ParseAddress(head); err != nil {
		n.tun = n.tun || strings.HasPrefix(uri, "tap:")
		return
	}
	switch access(query) {
	case "sysfs":
		n.hugePages = true
	case "noiommu":
		n.vfio, n.hugePages = true, true
	default:
		n.vfio, n.iommu = true, true
	}
}

// access is the way to a card that a URI asks for, "" for VFIO with an IOMMU.
func access(query string) string {
	for _, word := range strings.Split(query, "&") {
		if v, ok := strings.CutPrefix(word, "access="); ok {
			return v
		}
	}
	return ""
}

// physical says whether a card is known to need memory at fixed addresses although it is reached through VFIO.
func (e *exam) physical(uri string) bool {
	head, _, _ := strings.Cut(uri, "?")
	a, err := pci.ParseAddress(head)
	if err != nil {
		return false
	}
	d, err := e.Host.Device(a)
	return err == nil && device.PhysicalByID(d.Vendor, d.Device)
}

func (e *exam) ok(name, format string, args ...any) {
	e.Checks = append(e.Checks, Check{Name: name, Status: OK, Says: fmt.Sprintf(format, args...)})
}

func (e *exam) warn(name, fix, format string, args ...any) {
	e.Checks = append(e.Checks, Check{Name: name, Status: Warn, Says: fmt.Sprintf(format, args...), Fix: fix})
}

// lacks is a Fail when the thing is needed, else a Warn.
func (e *exam) lacks(needed bool, name, fix, format string, args ...any) {
	e.warn(name, fix, format, args...)
	if needed {
		e.Checks[len(e.Checks)-1].Status = Fail
	}
}

// limit is how much of a file is read: /proc/cpuinfo of a large machine has some hundred KiB.
const limit = 4 << 20

// read returns a file of the machine without the space around it, "" when it cannot be read.
func (e *exam) read(name string) string {
	f, err := os.OpenFile(e.Host.Path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return ""
	}
	defer f.Close() // read only: nothing can be lost
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(clean(string(b)))
}

// clean makes text that comes from the machine fit to be printed.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\ufffd' {
			return '?'
		}
		return r
	}, s)
}

// names lists a directory of the machine.
func (e *exam) names(name string) []string {
	entries, err := os.ReadDir(e.Host.Path(name))
	if err != nil {
		return nil
	}
	var list []string
	for _, x := range entries {
		list = append(list, x.Name())
	}
	return list
}

// there reports whether a file of the machine exists.
func (e *exam) there(name string) bool {
	_, err := os.Stat(e.Host.Path(name))
	return err == nil
}

// WriteText writes a line for each check, and below it what to do.
func (r *Report) WriteText(w io.Writer) error {
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", strings.ToUpper(string(c.Status)), width, c.Name, c.Says)
		if c.Fix != "" {
			fmt.Fprintf(&b, "%*s  -> %s\n", width+6, "", c.Fix)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// WriteJSON writes the report as one indented object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
