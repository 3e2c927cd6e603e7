package inventory

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// nameWidth is how much of a card's name the table shows.
const nameWidth = 44

// WriteText writes the list as a table.
func (l *List) WriteText(w io.Writer) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "URI\tDRIVER\tNUMA\tLINK\tIN USE\tSTATE\tNAME")
	for _, d := range l.Devices {
		numa := "-"
		if d.NUMANode >= 0 {
			numa = fmt.Sprint(d.NUMANode)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.URI, dash(d.Driver), numa, d.links(), d.use(), d.State, d.name(nameWidth))
	}
	if err := tw.Flush(); err != nil { // cannot fail: it writes to memory
		return err
	}
	if len(l.Devices) == 0 {
		b.WriteString("no network card on the PCI bus\n")
	}
	if len(l.Software) > 0 {
		fmt.Fprintf(&b, "%s  in software, always there\n", strings.Join(l.Software, "  "))
	}
	var next []string
	for _, d := range l.Devices {
		if d.State == Bindable || d.State == Ready {
			next = append(next, fmt.Sprintf("  %s  %s\n", d.URI, d.Next))
		}
	}
	if len(next) > 0 {
		b.WriteString("\nnext:\n" + strings.Join(next, ""))
	}
	return trimmed(w, &b)
}

// trimmed writes b without the space that the table leaves at the ends of lines.
func trimmed(w io.Writer, b *bytes.Buffer) error {
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write the devices: %w", err)
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// links are the interfaces with their state.
func (d *Device) links() string {
	var words []string
	for _, i := range d.Interfaces {
		switch {
		case !i.Up:
			words = append(words, i.Name+" down")
		case !i.Link:
			words = append(words, i.Name+" no link")
		default:
			words = append(words, i.Name+" up")
		}
	}
	return dash(strings.Join(words, ", "))
}

// use is the first reason, and how many more there are.
func (d *Device) use() string {
	switch len(d.InUse) {
	case 0:
		return "no"
	case 1:
		return d.InUse[0]
	}
	return fmt.Sprintf("%s, +%d", d.InUse[0], len(d.InUse)-1)
}

func (d *Device) name(width int) string {
	name := d.DeviceName
	if name == "" {
		name = strings.TrimSpace(fmt.Sprintf("%s %s:%s", d.VendorName, d.Vendor, d.Device))
	}
	if r := []rune(name); width > 0 && len(r) > width {
		name = string(r[:width-3]) + "..."
	}
	return name
}

// WriteDetail writes the first device of the list with all that is known about it.
func (l *List) WriteDetail(w io.Writer) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range l.Devices {
		l.Devices[i].lines(func(label, format string, args ...any) {
			fmt.Fprintf(tw, "  %s\t%s\n", label, fmt.Sprintf(format, args...))
		}, func(title string) { fmt.Fprintf(tw, "%s\n", title) })
	}
	if err := tw.Flush(); err != nil { // cannot fail: it writes to memory
		return err
	}
	return trimmed(w, &b)
}

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// lines gives every line to line, after the title.
func (d *Device) lines(line func(label, format string, args ...any), title func(string)) {
	title(fmt.Sprintf("%s  %s (%s)", d.URI, d.name(0), dash(d.VendorName)))
	line("id", "%s:%s revision %d, subsystem %s:%s, class %s", d.Vendor, d.Device, d.Revision, d.SubVendor, d.SubDevice, d.Class)
	driver := dash(d.Driver)
	if d.Override != "" {
		driver += " (driver_override " + d.Override + ")"
	}
	line("driver", "%s", driver)
	if d.DrivenBy != "" {
		line("driven by", "%s", d.DrivenBy)
	}
	if d.NUMANode >= 0 {
		line("NUMA node", "%d", d.NUMANode)
	}
	for _, i := range d.Interfaces {
		speed := ""
		if i.SpeedMbps > 0 {
			speed = fmt.Sprintf(", %d Mb/s", i.SpeedMbps)
		}
		line("interface", "%s %s, %s, link %s%s, MTU %d", i.Name, i.MAC, upDown(i.Up), upDown(i.Link), speed, i.MTU)
	}
	if len(d.InUse) == 0 {
		line("in use", "no")
	}
	for _, u := range d.InUse {
		line("in use", "%s", u)
	}
	if d.Node != nil {
		line("node", "%s, uid %d, gid %d, mode %s, opens for you: %t", d.Node.Path, d.Node.UID, d.Node.GID, d.Node.Mode, d.Node.Opens)
	}
	if d.Detail != nil {
		d.Detail.lines(d, line)
	}
	line("state", "%s", d.State)
	line("next", "%s", d.Next)
}

func (x *Detail) lines(d *Device, line func(label, format string, args ...any)) {
	switch {
	case d.Group < 0:
		line("IOMMU", "none watches it")
	case d.NoIOMMU:
		line("IOMMU", "none: group %d is VFIO's own and isolates nothing", d.Group)
	default:
		line("IOMMU", "group %d: %s", d.Group, strings.Join(x.GroupMembers, ", "))
	}
	if x.Blocked != "" {
		line("group", "%s", x.Blocked)
	}
	for _, b := range x.BARs {
		what := fmt.Sprintf("BAR %d", b.Index)
		if b.Index == 6 {
			what = "ROM"
		}
		more := ""
		if b.Wide {
			more += ", 64 bit"
		}
		if b.Prefetch {
			more += ", prefetchable"
		}
		line(what, "%s of %s at %s%s", size(b.Size), b.Kind, b.Start, more)
	}
	if l := x.Link; l != nil {
		line("PCIe", "%d lanes of %d, %d MT/s of %d", l.Lanes, l.MaxLanes, l.Speed, l.MaxSpeed)
	}
	if x.ConfigBytes > 64 {
		interrupts := "pin"
		if x.MSI {
			interrupts += ", MSI"
		}
		if x.MSIXVectors > 0 {
			interrupts += fmt.Sprintf(", MSI-X with %d vectors in BAR %d", x.MSIXVectors, x.MSIXBAR)
		}
		line("interrupts", "%s", interrupts)
		line("reset", "alone (FLR): %t", x.FLR)
	}
	var names []string
	for _, c := range x.Capabilities {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	if len(names) > 0 {
		line("can", "%s", strings.Join(names, ", "))
	}
	if x.Hidden != "" {
		line("hidden", "%s", x.Hidden)
	}
}

// size writes a power of two as people do.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return fmt.Sprintf("%d %s", n, units[i])
}
