// Cost counts the instructions that operations take, exactly, and holds them against the committed figures:
//
//	cost -file test/cost.txt                          every program of this module named costbench
//	cost -file test/cost.txt -update                  writes the measured figures to the file
//	cost -v -run forward ./ixgbe/internal/costbench   some cases of some programs, with a line for each function; no comparison
//
// A program to be measured is a package main that knows three flags: `-list` prints its cases, one a line, each a name and, when
// the usual number of operations does not suit it, another one; `-case NAME -n N` does the operations. An operation may be what
// the program likes, a packet for instance; N must not change anything but the number of them.
//
// A case that is above its figure by more than 2 % fails the run, and so does one that is on one side only. The instructions
// themselves come from valgrind (see internal/cachegrind), which differs a little between processors and versions of Go: the file
// says what it was measured with.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"bare.wire/tools/internal/cachegrind"
)

// usualOps is how many operations a case does, unless its program says otherwise.
const usualOps = 20000

func main() {
	var o options
	var pick string
	flag.StringVar(&o.file, "file", "", "file of the committed figures; without it nothing is compared")
	flag.BoolVar(&o.update, "update", false, "write the measured figures to the file")
	flag.BoolVar(&o.verbose, "v", false, "a line for each function")
	flag.Float64Var(&o.least, "least", 0, "with -v: leave out functions of fewer instructions")
	flag.StringVar(&pick, "run", "", "only the cases whose name matches this regular expression; nothing is compared")
	flag.Parse()
	var err error
	if o.pick, err = regexp.Compile(pick); err != nil {
		fail(fmt.Errorf("-run: %w", err))
	}
	if pick != "" {
		o.file = ""
	}
	o.dir = "."
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	faults, err := run(ctx, o, flag.Args())
	if err != nil {
		fail(err)
	}
	for _, f := range faults {
		fmt.Println("  *", f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cost:", err)
	os.Exit(2)
}

type options struct {
	dir, file       string
	update, verbose bool
	least           float64
	pick            *regexp.Regexp
}

// run measures, and returns what is wrong with the figures.
func run(ctx context.Context, o options, packages []string) ([]string, error) {
	var err error
	if len(packages) == 0 {
		if packages, err = costbenches(ctx, o.dir); err != nil {
			return nil, err
		}
	}
	measured := cachegrind.Figures{}
	for _, pkg := range packages {
		if err := measure(ctx, o, pkg, measured); err != nil {
			return nil, fmt.Errorf("%s: %w", pkg, err)
		}
	}
	fmt.Printf("cost: %d cases of %d programs\n", len(measured), len(packages))
	if o.file == "" {
		return nil, nil
	}
	if o.update {
		return nil, write(o.file, measured)
	}
	f, err := os.Open(o.file)
	if err != nil {
		return nil, fmt.Errorf("the committed figures: %w", err)
	}
	defer f.Close()
	committed, err := cachegrind.ReadFigures(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	return cachegrind.Compare(committed, measured), nil
}

// costbenches finds the programs to measure: every package main in a directory named costbench.
func costbenches(ctx context.Context, dir string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []string
	for _, p := range strings.Fields(string(out)) {
		if strings.HasSuffix(p, "/costbench") {
			found = append(found, p)
		}
	}
	return found, nil
}

// measure builds a program and adds the figures of its cases.
func measure(ctx context.Context, o options, pkg string, into cachegrind.Figures) error {
	tmp, err := os.MkdirTemp("", "cost")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	program := filepath.Join(tmp, "costbench")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
	build.Dir = o.dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	list, err := exec.CommandContext(ctx, program, "-list").Output()
	if err != nil {
		return fmt.Errorf("-list: %w", err)
	}
	cases, err := parseList(list)
	if err != nil {
		return err
	}
	for _, c := range cases {
		if !o.pick.MatchString(c.name) {
			continue
		}
		if _, twice := into[c.name]; twice {
			return fmt.Errorf("case %s is in two programs", c.name)
		}
		cost, err := c.cost(ctx, program)
		if err != nil {
			return fmt.Errorf("case %s: %w", c.name, err)
		}
		into[c.name] = cost.PerOp
		fmt.Printf("%-40s %8.2f instructions each\n", c.name, cost.PerOp)
		if !o.verbose {
			continue
		}
		for _, l := range cost.Lines {
			if l.PerOp >= o.least {
				fmt.Printf("  %8.2f %s\n", l.PerOp, l.Func)
			}
		}
		fmt.Printf("  %8.2f left out: scheduling by the Go runtime\n", cost.LeftOut)
	}
	return nil
}

// benchCase is one case of a program.
type benchCase struct {
	name string
	ops  uint64
}

func parseList(list []byte) ([]benchCase, error) {
	var cases []benchCase
	for line := range bytes.Lines(list) {
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		c := benchCase{f[0], usualOps}
		if len(f) > 1 {
			n, err := strconv.ParseUint(f[1], 10, 32)
			if err != nil || n == 0 || len(f) > 2 {
				return nil, fmt.Errorf("-list printed %q: want a name and perhaps a number of operations", strings.TrimSpace(string(line)))
			}
			c.ops = n
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("-list printed no case")
	}
	return cases, nil
}

// cost runs a case twice, with its operations and with twice as many.
func (c benchCase) cost(ctx context.Context, program string) (cachegrind.Cost, error) {
	var runs [2]cachegrind.Profile
	for i := range runs {
		var err error
		n := strconv.FormatUint(c.ops*uint64(i+1), 10)
		if runs[i], err = cachegrind.Run(ctx, program, "-case", c.name, "-n", n); err != nil {
			return cachegrind.Cost{}, err
		}
	}
	return cachegrind.Difference(runs[0], runs[1], c.ops), nil
}

// write replaces the file of the committed figures.
func write(file string, f cachegrind.Figures) error {
	var b bytes.Buffer
	version, _ := exec.Command("valgrind", "--version").Output()
	comment := fmt.Sprintf("Instructions per operation: `case figure`. Measured by `make cost-update` with %s on %s, %s.\n"+
		"`make cost` fails when a case takes more than its figure and 2 %%.", runtime.Version(), runtime.GOARCH, strings.TrimSpace(string(version)))
	if err := f.Write(&b, comment); err != nil {
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		return fmt.Errorf("the committed figures: %w", err)
	}
	return nil
}
