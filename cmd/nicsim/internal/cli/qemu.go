package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"bare.wire/clock"
	"bare.wire/sim"
	"bare.wire/sim/link"
	"bare.wire/sim/nic82599"
	"bare.wire/sim/qemu"
)

// qemuFlags are the flags of "nicsim qemu".
type qemuFlags struct {
	wire, capture, control, log, fault, summary string

	buses           []string
	cards, slot     int
	seed            uint64
	verbose, strict bool
	noMSIX          bool
}

// listFaults in place of a fault's name prints them all.
const listFaults = "list"

func (a *app) qemuCommand() *cobra.Command {
	var f qemuFlags
	cmd := &cobra.Command{
		Use:   "qemu [flags] -- qemu-system-x86_64 ARGS...",
		Short: "Start a virtual machine with software 82599s in it",
		Long: `nicsim qemu starts QEMU as you would, with one or two Intel 82599 10 GbE cards in software as PCI devices. The
guest's driver, whichever it is, finds 8086:10fb at 00:04.0 (and 00:05.0). Its DMA goes through the guest's IOMMU, if
it has one; what the driver does that the datasheet forbids is listed at the end.

QEMU's exit status is nicsim's. Machine type q35, TCG in one thread, shareable RAM and -vga none are added where the
command line says nothing about them; "-smp N" with an -accel of yours needs "-accel tcg,thread=single".`,
		Example: `  nicsim qemu -- qemu-system-x86_64 -m 512M -nographic -kernel vmlinuz -initrd initrd.gz -append console=ttyS0
  nicsim qemu --wire tap:tap0 -- qemu-system-x86_64 ...            the guest talks to the host
  nicsim qemu --wire 'pair?delay=5us&loss=1e-3' -- qemu-system...  two cards, and a wire that loses frames
  nicsim qemu --wire pair --capture out.pcap -- qemu-system...     the same, and what was sent in a file`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.fault == listFaults && len(args) == 0 {
				return nil // no machine is started
			}
			if len(args) == 0 || cmd.ArgsLenAtDash() != 0 {
				return usage("write nicsim's own flags, then --, then qemu-system-x86_64 and its arguments")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.runQEMU(cmd.Context(), &f, args) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.wire, "wire", "none", "what the card is cabled to: none, pair (a second card), tap:NAME (the host), pcap:FILE;\nwith the wire's parameters as pair?delay=5us&loss=1e-3 (see below)")
	fl.IntVar(&f.cards, "cards", 0, "number of cards, 1 or 2 (default 2 with --wire pair, else 1)")
	fl.IntVar(&f.slot, "slot", 4, "PCI slot of the first card; the second is in the next")
	fl.StringSliceVar(&f.buses, "bus", nil, "instead of slots: ids of pcie-root-ports to plug the cards into, one each")
	fl.StringVar(&f.capture, "capture", "", "write every frame that is put onto the wire to this pcap file")
	fl.StringVar(&f.control, "control", "", "listen on this unix socket for commands, one JSON object a line (docs/qemu.md)")
	fl.StringVar(&f.fault, "fault", "", "fault of the cards from the start on; \"list\" alone prints those there are")
	fl.BoolVar(&f.noMSIX, "no-msix", false, "cards without MSI-X, so that drivers take MSI")
	fl.Uint64Var(&f.seed, "seed", 1, "another number gives other delays of the cards")
	fl.BoolVar(&f.strict, "strict", false, "exit with 1 if the driver did what the datasheet forbids, although the guest says 0")
	fl.StringVar(&f.summary, "summary", "text", "what to say at the end, on standard error: text, json or none")
	fl.StringVar(&f.log, "log", "", "write the log to this file instead of standard error")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log more: resets, IOMMU, how QEMU is called")
	cmd.SetUsageTemplate(cmd.UsageTemplate() + "\nParameters of a wire:\n" + indent(link.Usage()))
	return cmd
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ") + "\n"
}

// bench is everything that lives beside a virtual machine.
type bench struct {
	clk     clock.Clock
	world   *sim.World
	machine *qemu.Machine
	cable   *cable
	cards   []*nic82599.Card
	slots   []*qemu.Function
	log     *slog.Logger
}

// check reads the flags that need more than pflag does.
func (f *qemuFlags) check() (w wireFlag, faults nic82599.Faults, err error) {
	if w, err = parseWire(f.wire, wireNone, wirePair, wireTap, wirePcap); err != nil {
		return w, faults, usage("%w", err)
	}
	if f.cards == 0 {
		f.cards = 1
		if w.kind == wirePair {
			f.cards = 2
		}
	}
	switch {
	case f.cards < 1 || f.cards > 2:
		return w, faults, usage("--cards %d: want 1 or 2", f.cards)
	case w.kind == wirePair && f.cards != 2:
		return w, faults, usage("--wire pair joins two cards; leave --cards out")
	case f.cards == 2 && w.kind != wirePair && w.kind != wireNone:
		return w, faults, usage("--cards 2 with --wire %s: that wire has one card; leave --cards out", w.kind)
	case len(f.buses) > 0 && len(f.buses) != f.cards:
		return w, faults, usage("--bus names %d root ports for %d cards: name one for each, with a comma between", len(f.buses), f.cards)
	case f.slot < 1 || f.slot+f.cards > 31:
		return w, faults, usage("--slot %d: want 1 to 29; 0 is the host bridge, 31 the chipset's", f.slot)
	case f.summary != "text" && f.summary != "json" && f.summary != "none":
		return w, faults, usage("--summary %q: want text, json or none", f.summary)
	}
	if faults, err = nic82599.FaultByName(f.fault); err != nil {
		return w, faults, usage("--fault: %w", err)
	}
	return w, faults, nil
}

func (a *app) runQEMU(ctx context.Context, f *qemuFlags, command []string) (err error) {
	if f.fault == listFaults {
		_, err := fmt.Fprintln(a.out, strings.Join(nic82599.FaultNames(), "\n")+"\nmask:REG:BIT")
		return err
	}
	w, faults, err := f.check()
	if err != nil {
		return err
	}
	log, closer, err := a.logger(f.log, f.verbose)
	if err != nil {
		return err
	}
	defer closer.Close()
	b := &bench{clk: clock.Real(), log: log}
	b.world = sim.NewWorld(b.clk)
	b.machine, err = qemu.New(ctx, qemu.Config{Command: command, Clock: b.clk, Logger: log, Stdin: a.in, Stdout: a.out, Stderr: a.log})
	if err != nil {
		if errors.Is(err, qemu.ErrCommand) {
			return usage("%w", err)
		}
		return environment(err)
	}
	defer func() { err = besides(err, b.machine.Close()) }()
	if err := b.build(f, w, faults); err != nil {
		return err
	}
	return a.live(ctx, f, b)
}

// build makes the cards and their wire.
func (b *bench) build(f *qemuFlags, w wireFlag, faults nic82599.Faults) (err error) {
	if b.cable, err = plug(b.world, w, f.capture); err != nil {
		return err
	}
	for i := range f.cards {
		at, where := qemu.Slot{Slot: f.slot + i}, fmt.Sprintf("slot %d", f.slot+i)
		if len(f.buses) > 0 {
			at, where = qemu.Slot{Bus: f.buses[i]}, "bus "+f.buses[i]
		}
		slot, err := b.machine.Add(at)
		if err != nil {
			return usage("%w", err)
		}
		var end *link.End
		if b.cable.wire != nil {
			end = []*link.End{b.cable.wire.A(), b.cable.wire.B()}[i]
		}
		card := nic82599.New(nic82599.Config{
			Name: fmt.Sprintf("card %d (%s)", i, where), Memory: slot.Memory(), World: b.world, End: end,
			MAC: [6]byte{0x02, 0x82, 0x59, 0x9e, 0x00, byte(i + 1)}, Seed: f.seed*2 + uint64(i), Faults: faults,
			NoMSIX: f.noMSIX,
		})
		card.EnableDMALog(dmaLogLen)
		if err := slot.Attach(card); err != nil {
			return &exitError{Failed, err}
		}
		b.cards, b.slots = append(b.cards, card), append(b.slots, slot)
	}
	return nil
}

// dmaLogLen is how many of a card's latest accesses to memory can be asked for.
const dmaLogLen = 64

// live runs the machine, with the world stepped beside it, to its end.
func (a *app) live(ctx context.Context, f *qemuFlags, b *bench) (err error) {
	var beside sync.WaitGroup
	run, cancel := context.WithCancel(ctx)
	var ctl *control
	defer func() { // in this order: nothing may reach the guest's memory once the machine is closed
		cancel()
		if ctl != nil {
			ctl.close()
		}
		beside.Wait()
		for _, c := range b.cards {
			err = besides(err, c.Close())
		}
		err = besides(err, b.cable.close())
	}()
	if f.control != "" {
		if ctl, err = listen(f.control, b.answer); err != nil {
			return environment(err)
		}
		beside.Go(func() { ctl.serve() })
	}
	beside.Go(func() { _ = b.world.Run(run) }) // ends with run, and only then
	status, err := b.machine.Run(ctx)
	if err != nil {
		return &exitError{Failed, err}
	}
	a.status = status
	s := b.summarise()
	if err := s.print(a.log, f.summary); err != nil {
		return &exitError{Failed, err}
	}
	if f.strict && a.status == 0 && s.misused() {
		a.status = int(Misused)
	}
	return nil
}
