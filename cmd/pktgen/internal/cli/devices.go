package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bare.wire/cmd/pktgen/internal/inventory"
	"bare.wire/device"
	"bare.wire/pci"
)

// deviceFlags are the flags of the commands about devices as they were written.
type deviceFlags struct {
	output         string
	all            bool
	driver         string
	user, group    string
	force, noIOMMU bool
	root           string
	host           *pci.Host // that root names
}

func (a *app) devicesCommand() *cobra.Command {
	var f deviceFlags
	list := func(cmd *cobra.Command, _ []string) error { return a.listDevices(f) }
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List network cards, and give them to pktgen or back to the kernel",
		Long: `List the machine's network cards: who uses each, and what it takes to drive it from here. Listing needs
no privilege and changes nothing; bind, unbind and restore need root.

Exit codes: 0 done, 2 wrong usage, 3 refused, and nothing was changed, or the kernel did not do it.`,
		Example: `  pktgen devices
  pktgen devices show 0000:03:00.0
  sudo pktgen devices bind 0000:03:00.0 --user $USER
  sudo pktgen devices restore 0000:03:00.0`,
		Args: cobra.NoArgs,
		RunE: list,
	}
	cmd.PersistentFlags().StringVar(&f.root, "root", "", "look at the sys, proc, dev and run below this directory")
	_ = cmd.PersistentFlags().MarkHidden("root") // the flag exists, so this cannot fail
	ls := &cobra.Command{Use: "list", Short: "List network cards", Args: cobra.NoArgs, RunE: list}
	for _, c := range []*cobra.Command{cmd, ls} {
		c.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
		c.Flags().BoolVar(&f.all, "all", false, "list what is no network card too")
	}
	cmd.AddCommand(ls, a.showCommand(&f), a.bindCommand(&f), a.unbindCommand(&f), a.restoreCommand(&f))
	return cmd
}

func (a *app) showCommand(f *deviceFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ADDR", Short: "Show all that is known about one card", Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error { return a.showDevice(*f, args[0]) },
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

func (a *app) bindCommand(f *deviceFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bind ADDR...", Short: "Give cards to vfio-pci, so that pktgen can drive them",
		Long: `Give cards to vfio-pci, so that pktgen can drive them. What each was bound to is noted in
/run/barewire/bind.json; "pktgen devices restore" gives it back. A card that is in use (it has an address, a route,
a VLAN, or belongs to a bond or bridge), that shares its IOMMU group with others, or that no IOMMU guards, is
refused with the reason, and nothing is changed.`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachDevice(cmd.Context(), *f, args, a.bindDevice)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.driver, "driver", pci.VFIODriver, "the kernel driver that gets the card")
	fs.BoolVar(&f.force, "force", false, "bind although the card is in use, shares its group, or is no network card")
	fs.BoolVar(&f.noIOMMU, "allow-noiommu", false, "allow VFIO without an IOMMU: nothing then keeps the card from writing anywhere in memory")
	fs.StringVar(&f.user, "user", "", "give the device node of the group to this user, who then needs no root")
	fs.StringVar(&f.group, "group", "", "give the device node to this group")
	return cmd
}

func (a *app) unbindCommand(f *deviceFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "unbind ADDR...", Short: "Take cards from their driver and leave them without one", Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachDevice(cmd.Context(), *f, args, func(ctx context.Context, f deviceFlags, opt pci.BindOptions, d *pci.Device) error {
				return a.changed(f, d, f.host.Unbind(ctx, d.Address, opt))
			})
		},
	}
	cmd.Flags().BoolVar(&f.force, "force", false, "unbind although the card is in use")
	return cmd
}

func (a *app) restoreCommand(f *deviceFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore ADDR...", Short: "Give cards back to the kernel driver that they had", Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachDevice(cmd.Context(), *f, args, func(ctx context.Context, f deviceFlags, opt pci.BindOptions, d *pci.Device) error {
				return a.changed(f, d, f.host.Restore(ctx, d.Address, opt))
			})
		},
	}
	cmd.Flags().BoolVar(&f.force, "force", false, "restore although a process has the card open")
	return cmd
}

func exactlyOne(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("%d addresses: give one, as in %s 0000:03:00.0 (pktgen devices lists them)", len(args), cmd.CommandPath())
	}
	return nil
}

func atLeastOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("no address: give one or more, as in %s 0000:03:00.0 (pktgen devices lists them)", cmd.CommandPath())
	}
	return nil
}

// machine is the host that the commands look at.
func (a *app) machine(root string) *pci.Host {
	if a.host != nil {
		return a.host
	}
	return &pci.Host{Root: root}
}

func checkOutput(name string) error {
	if name != "text" && name != "json" {
		return usage("output format %q: unknown; write text or json", name)
	}
	return nil
}

func (a *app) listDevices(f deviceFlags) error {
	if err := checkOutput(f.output); err != nil {
		return err
	}
	l := inventory.Make(a.machine(f.root), f.all)
	for _, s := range device.Schemes() {
		if name, _, _ := strings.Cut(s, " "); strings.HasSuffix(name, ":") {
			l.Software = append(l.Software, name)
		}
	}
	for _, p := range l.Problems {
		fmt.Fprintf(a.log, "pktgen: %s\n", p)
	}
	return a.written(f, l, l.WriteText)
}

func (a *app) showDevice(f deviceFlags, text string) error {
	if err := checkOutput(f.output); err != nil {
		return err
	}
	host := a.machine(f.root)
	d, err := resolve(host, text)
	if err != nil {
		return err
	}
	l, err := inventory.One(host, d.Address)
	if err != nil {
		return &exitError{Environment, err}
	}
	return a.written(f, l, l.WriteDetail)
}

// written writes a list in the form that was asked for.
func (a *app) written(f deviceFlags, l *inventory.List, text func(io.Writer) error) error {
	write := text
	if f.output == "json" {
		write = l.WriteJSON
	}
	if err := write(a.out); err != nil {
		return &exitError{Device, err}
	}
	return nil
}

// resolve finds the device that is meant by an address or by the name of its interface.
func resolve(h *pci.Host, text string) (*pci.Device, error) {
	address, wrong := pci.ParseAddress(text)
	if wrong == nil {
		d, err := h.Device(address)
		if err != nil {
			return nil, &exitError{Environment, err}
		}
		return d, nil
	}
	if !strings.Contains(text, ":") {
		wrong = fmt.Errorf("%q: no card has an interface of that name (a card that is bound to vfio-pci has none); write its address, as in 0000:03:00.0 (\"pktgen devices\" lists them)", text)
		list, _ := h.List() // what cannot be read has no interface to be found by
		for i := range list {
			for _, n := range list[i].Interfaces {
				if n.Name == text {
					return &list[i], nil
				}
			}
		}
	}
	return nil, &exitError{Usage, wrong}
}

// eachDevice finds all devices first, so that a mistyped address changes nothing, and then does them one after the other.
func (a *app) eachDevice(ctx context.Context, f deviceFlags, args []string,
	do func(context.Context, deviceFlags, pci.BindOptions, *pci.Device) error) error {
	f.host = a.machine(f.root)
	opt := pci.BindOptions{Driver: f.driver, Force: f.force, AllowNoIOMMU: f.noIOMMU}
	if f.driver != "" {
		if err := pci.CheckDriver(f.driver); err != nil {
			return usage("--driver: %w", err)
		}
	}
	var err error
	if opt.Owner, err = owner(f.user, f.group); err != nil {
		return err
	}
	var devices []*pci.Device
	for _, text := range args {
		d, err := resolve(f.host, text)
		if err != nil {
			return err
		}
		devices = append(devices, d)
	}
	var failed []string
	for _, d := range devices {
		if f.force {
			for _, reason := range f.host.InUse(d) {
				fmt.Fprintf(a.log, "pktgen: %s: by force, although it is in use: %s\n", d.Address, reason)
			}
		}
		if err := do(ctx, f, opt, d); err != nil {
			var exit *exitError
			if errors.As(err, &exit) && exit.code == Device {
				return err
			}
			failed = append(failed, err.Error())
		}
	}
	if len(failed) > 0 {
		return &exitError{Environment, errors.New(strings.Join(failed, "\npktgen: "))}
	}
	return nil
}

func (a *app) bindDevice(ctx context.Context, f deviceFlags, opt pci.BindOptions, d *pci.Device) error {
	err := f.host.Bind(ctx, d.Address, opt)
	if err == nil && strings.HasPrefix(opt.Driver, "vfio-") && (d.Group < 0 || d.NoIOMMU) {
		fmt.Fprintf(a.log, "pktgen: %s: no IOMMU guards the machine from this card: a mistake in its driver can overwrite any memory; do not use it for anything but tests\n", d.Address)
	}
	return a.changed(f, d, err)
}

// changed says what has become of a device.
func (a *app) changed(f deviceFlags, was *pci.Device, err error) error {
	if err != nil {
		return err
	}
	d, err := f.host.Device(was.Address)
	if err != nil {
		return err
	}
	words := driverName(d.Driver)
	if d.Driver != was.Driver {
		words += ", was with " + driverName(was.Driver)
	} else {
		words += ", as before"
	}
	if node := d.GroupNode(); node != "" && strings.HasPrefix(d.Driver, "vfio-") {
		words += ", " + node
	}
	for _, i := range d.Interfaces {
		words += ", interface " + i.Name
	}
	return a.print("%s: %s\n", d.Address, words)
}

func driverName(name string) string {
	if name == "" {
		return "no driver"
	}
	return name
}

// owner reads --user and --group: names or numbers. The user's own group is not implied.
func owner(userText, groupText string) (*pci.Owner, error) {
	if userText == "" && groupText == "" {
		return nil, nil
	}
	o := &pci.Owner{UID: -1, GID: -1}
	for _, w := range []struct {
		flag, text string
		look       func(string) (string, error)
		to         *int
	}{{"--user", userText, userID, &o.UID}, {"--group", groupText, groupID, &o.GID}} {
		if w.text == "" {
			continue
		}
		id := w.text
		n, err := strconv.ParseUint(id, 10, 31)
		if err != nil {
			if id, err = w.look(w.text); err == nil {
				n, err = strconv.ParseUint(id, 10, 31)
			}
		}
		if err != nil {
			return nil, usage("%s %q: %w", w.flag, w.text, err)
		}
		*w.to = int(n)
	}
	return o, nil
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", notThere(err)
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", notThere(err)
	}
	return g.Gid, nil
}

// notThere shortens what package user says about a missing file: then there is simply nobody of that name.
func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is nobody of that name on this machine")
	}
	return err
}
