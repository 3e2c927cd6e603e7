// Mutants runs the mutants that files describe (see internal/mutant) and fails when one survives:
//
//	mutants test/mutants/*.mut
//	mutants -run tail test/mutants/ixgbe.mut      those whose name matches
//
// It is started in the root of the module.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"

	"bare.wire/tools/internal/mutant"
	"bare.wire/tools/internal/testjson"
)

func main() {
	pick := flag.String("run", "", "run only the mutants whose name matches this regular expression")
	parallel := flag.Int("parallel", min(2, runtime.NumCPU()), "mutants at a time")
	limit := flag.Duration("timeout", time.Minute, "time for one run of a test binary")
	save := flag.String("save", "", "file to write the counts to, for testrun -sum")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survivors, err := run(ctx, *pick, *save, mutant.Config{Root: ".", Parallel: *parallel, Timeout: *limit}, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// run returns how many mutants were not killed.
func run(ctx context.Context, pick, save string, c mutant.Config, files []string) (int, error) {
	re, err := regexp.Compile(pick)
	if err != nil {
		return 0, fmt.Errorf("-run: %w", err)
	}
	all, err := read(files, re)
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("no mutant in %d files", len(files))
	}
	saved := testjson.Saved{Name: "mutants"}
	_, err = mutant.Run(ctx, c, all, func(r mutant.Result) {
		note := r.Note
		if r.Fate == mutant.Survived {
			note = r.Why
		}
		fmt.Printf("%-8s %-36s %5.1fs  %s\n", r.Fate, r.Name, r.Took.Seconds(), strings.TrimSpace(note))
		if r.Fate == mutant.Killed {
			saved.Counts.Passed++
			return
		}
		saved.Counts.Failed++
		saved.Complaints = append(saved.Complaints, fmt.Sprintf("%s: mutant %s: %s", r.Source, r.Name, r.Fate))
	})
	if err != nil {
		return 0, err
	}
	fmt.Printf("mutants: %d killed, %d not\n", saved.Counts.Passed, saved.Counts.Failed)
	return saved.Counts.Failed, saved.Save(save)
}

// read reads the descriptions; a name may stand only once.
func read(files []string, pick *regexp.Regexp) ([]mutant.Mutant, error) {
	var all []mutant.Mutant
	names := map[string]string{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		some, err := mutant.Parse(file, f)
		f.Close()
		if err != nil {
			return nil, err
		}
		for _, m := range some {
			if at, twice := names[m.Name]; twice {
				return nil, fmt.Errorf("%s: mutant %s is at %s too", m.Source, m.Name, at)
			}
			names[m.Name] = m.Source
			if pick.MatchString(m.Name) {
				all = append(all, m)
			}
		}
	}
	return all, nil
}
