package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// roundsPerValue is how many rounds are one value.
const roundsPerValue = 16

func main() {
	if len(os.Args) > 1 && os.Args[1] == "frontend" {
		if err := frontEnd(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "frontend:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	pick := flag.String("cells", "", "only cells whose name (\"packed rx 32\") matches this regular expression")
	bursts := flag.String("bursts", "32", "frames a call, with commas")
	flag.IntVar(&o.runs, "runs", 5, "runs of each front end, taken in turns")
	flag.IntVar(&o.rounds, "rounds", 4000, "rounds of 256 frames a run")
	flag.BoolVar(&o.instructions, "instructions", false, "count instructions under valgrind, with what allocates, frees and asks, instead of taking times")
	flag.BoolVar(&o.rate, "rate", false, "frames per second with the back end on another processor, instead of taking times")
	flag.Parse()
	err := o.parse(*pick, *bursts)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = o.all(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vhost:", err)
		os.Exit(1)
	}
}

type options struct {
	runs, rounds       int
	instructions, rate bool
	pick               *regexp.Regexp
	bursts             []int
}

func (o *options) parse(pick, bursts string) (err error) {
	if o.pick, err = regexp.Compile(pick); err != nil {
		return fmt.Errorf("-cells: %w", err)
	}
	for b := range strings.SplitSeq(bursts, ",") {
		n, err := strconv.Atoi(b)
		if err != nil || n < 1 || n > longestRun {
			return fmt.Errorf("-bursts %s: want numbers from 1 to %d, with commas", bursts, longestRun)
		}
		o.bursts = append(o.bursts, n)
	}
	if o.runs < 1 || o.rounds < roundsPerValue {
		return fmt.Errorf("-runs %d -rounds %d: want at least 1 and %d", o.runs, o.rounds, roundsPerValue)
	}
	return nil
}

// newLab compiles what is run.
func newLab(ctx context.Context, dir string) (*lab, error) {
	l := &lab{dir: dir, huge: hugePages()}
	var err error
	if l.cpu, l.peer, err = processors(); err != nil {
		return nil, err
	}
	if l.self, err = os.Executable(); err != nil {
		return nil, err
	}
	return l, compile(ctx, dir)
}

func (o *options) all(ctx context.Context, w io.Writer) error {
	dir, err := os.MkdirTemp("", "vhost")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if !o.instructions {
		defer setAsideHugePages()()
	}
	l, err := newLab(ctx, dir)
	if err != nil {
		return err
	}
	if o.instructions {
		l.huge = false // valgrind lays memory out itself
	}
	// Whoever else runs on this machine runs less meanwhile, where that is allowed.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, -15)
	pages := "pages of 2 MiB"
	switch {
	case o.instructions:
		pages = "under valgrind"
	case !l.huge:
		pages = "pages of 4 KiB, ours perhaps larger: no figures to compare, see echo 64 > /proc/sys/vm/nr_hugepages"
	}
	fmt.Fprintf(w, "front ends on DPDK's net_vhost, 60-byte frames, rings of %d, %s, processor %d\n", ringSize, pages, l.cpu)
	modes, measure, unit := []string{"tx", "rx", "io"}, o.times, "CPU ns a frame"
	switch {
	case o.instructions:
		measure, unit = o.count, "instructions a frame, all in"
	case o.rate:
		modes, measure, unit = []string{"sink", "flood"}, o.rates, fmt.Sprintf("million frames a second, back end on processor %d", l.peer)
		if l.cpu == l.peer {
			return fmt.Errorf("-rate: wants two processors, and there is one")
		}
	}
	fmt.Fprintf(w, "%-16s %-28s %-28s %s   (%s)\n", "ring mode burst", "ours", "DPDK virtio-user", "ours/DPDK", unit)
	for _, ring := range []string{"split", "packed"} {
		for _, mode := range modes {
			for _, burst := range o.bursts {
				c := cell{ring, mode, burst, o.rounds, 256}
				if !o.pick.MatchString(c.String()) {
					continue
				}
				if err := measure(ctx, w, l, c); err != nil {
					return fmt.Errorf("%v: %w", c, err)
				}
			}
		}
	}
	return nil
}

// sides runs f for our front end and for DPDK's, in turns, and prints the line of a cell.
func (o *options) sides(w io.Writer, c cell, runs int, f func(ours bool) (float64, error)) error {
	var v [2][]float64
	for range runs {
		for side := range v {
			x, err := f(side == 0)
			if err != nil {
				return fmt.Errorf("%s: %w", []string{"ours", "DPDK"}[side], err)
			}
			v[side] = append(v[side], x)
		}
	}
	fmt.Fprintf(w, "%-16v %-28s %-28s %s\n", c, spread(v[0], 1), spread(v[1], 1), spread(ratios(v[0], v[1]), 2))
	return nil
}

func (o *options) times(ctx context.Context, w io.Writer, l *lab, c cell) error {
	return o.sides(w, c, o.runs, func(ours bool) (float64, error) {
		r, _, err := l.run(ctx, ours, c)
		if err == nil {
			err = r.check(uint64(c.rounds * c.frames))
		}
		return r.perFrame(c.frames), err
	})
}

func (o *options) rates(ctx context.Context, w io.Writer, l *lab, c cell) error {
	c.rounds = 500 // ms
	return o.sides(w, c, o.runs, func(ours bool) (float64, error) {
		r, _, err := l.run(ctx, ours, c)
		return median(r.rounds) / 1e6, err
	})
}

// count takes the difference of a run and one of twice as many rounds.
func (o *options) count(ctx context.Context, w io.Writer, l *lab, c cell) error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return fmt.Errorf("-instructions: there is no valgrind: on Debian: apt-get install valgrind")
	}
	return o.sides(w, c, 1, func(ours bool) (float64, error) {
		var refs [2]float64
		for i := range refs {
			twice := c
			twice.rounds = 200 * (i + 1)
			r, stderr, err := l.run(ctx, ours, twice, "env", "GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off", "GOMAXPROCS=1", "GOGC=off",
				"valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file="+filepath.Join(l.dir, "cachegrind"))
			if err == nil {
				err = r.check(uint64(twice.rounds * c.frames))
			}
			if err != nil {
				return 0, err
			}
			if refs[i], err = instructionRefs(stderr); err != nil {
				return 0, err
			}
		}
		return (refs[1] - refs[0]) / float64(200*c.frames), nil
	})
}

var refsLine = regexp.MustCompile(`I\s+refs:\s+([0-9,]+)`)

// instructionRefs finds valgrind's sum.
func instructionRefs(stderr string) (float64, error) {
	m := refsLine.FindStringSubmatch(stderr)
	if m == nil {
		return 0, fmt.Errorf("valgrind printed no sum of instructions: %s", stderr)
	}
	return strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
}
