// Docsh runs the shell blocks of Markdown files as they are written (see internal/docsh):
//
//	docsh README.md docs/*.md            the blocks fenced `sh ci`
//	docsh -kinds ci,guest README.md      those fenced `sh guest` too
//	docsh -list README.md                only says which there are
//
// It runs them from the directory it is started in, and ends with `N passed, N failed, N skipped`; blocks that need hardware
// are not counted. Blocks for a guest are run by the command that -guest names, one guest for each.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"bare.wire/tools/internal/docsh"
	"bare.wire/tools/internal/testjson"
)

func main() {
	kinds := flag.String("kinds", "ci", "kinds of blocks to run, with commas")
	list := flag.Bool("list", false, "list the blocks, run none")
	guest := flag.String("guest", "go run ./test/guest/cmd/guest", "what runs a command in a guest")
	limit := flag.Duration("timeout", 5*time.Minute, "time for one block")
	save := flag.String("save", "", "file to write the counts to, for testrun -sum")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second time, at once
	var counts testjson.Counts
	var complaints []string
	complain := func(format string, args ...any) {
		counts.Failed++
		complaints = append(complaints, fmt.Sprintf(format, args...))
		fmt.Println("  *", complaints[len(complaints)-1])
	}
	for _, file := range flag.Args() {
		blocks, err := find(file)
		if err != nil {
			complain("%v", err)
		}
		for _, b := range blocks {
			if *list {
				fmt.Printf("%s %s\n", b, b.Kind)
				continue
			}
			if !slices.Contains(strings.Split(*kinds, ","), b.Kind) {
				continue
			}
			if ctx.Err() != nil {
				fmt.Fprintln(os.Stderr, "docsh: interrupted")
				os.Exit(2)
			}
			if err := run(ctx, b, strings.Fields(*guest), *limit); err != nil {
				complain("%v", err)
				continue
			}
			counts.Passed++
		}
	}
	if *list {
		return
	}
	fmt.Printf("docs: %s\n", counts)
	if err := (testjson.Saved{Name: "docs", Counts: counts, Complaints: complaints}).Save(*save); err != nil {
		fmt.Fprintln(os.Stderr, "docsh:", err)
		os.Exit(2)
	}
	if counts.Failed > 0 {
		os.Exit(1)
	}
}

func find(file string) ([]docsh.Block, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return docsh.Find(file, f)
}

// run runs a block, and prints what it printed only when it fails.
func run(ctx context.Context, b docsh.Block, guest []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	var out bytes.Buffer
	// A block that says `make test` would run itself for ever: the Makefile looks at this variable.
	env := append(os.Environ(), "BAREWIRE_DOCS=1")
	var in []string
	if b.Kind == "guest" {
		in = guest
	}
	err := docsh.Run(ctx, ".", env, in, b, &out)
	for try := 2; err != nil && try <= b.Tries && ctx.Err() == nil; try++ {
		fmt.Printf("     %s: %v: try %d of %d\n", b, err, try, b.Tries)
		time.Sleep(10 * time.Second) // what made the machine stand still may pass
		out.Reset()
		err = docsh.Run(ctx, ".", env, in, b, &out)
	}
	word := "ok  "
	if err != nil {
		word = "FAIL"
	}
	fmt.Printf("%s %s  %.1fs\n", word, b, time.Since(start).Seconds())
	if err != nil {
		fmt.Print(out.String())
	}
	return err
}
