package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"bare.wire/cmd/pktgen/internal/capture"
	"bare.wire/cmd/pktgen/internal/engine"
)

// outputNames are the files that the flags ask for, "" for none: what was sent, what was received, the result.
type outputNames struct{ tx, rx, result string }

// outputs are those files, open.
type outputs struct {
	tx, rx *capture.File
	result *os.File
}

// distinct is an error when two outputs, or an output and the input ("" for none), are one file: what is written last would
// destroy the rest. Two uses of one device or pipe are the user's own affair.
func (o outputNames) distinct(input string) error {
	files := []struct{ flag, name string }{{"the capture to replay", input}, {"--pcap-tx", o.tx}, {"--pcap-rx", o.rx}, {"--out", o.result}}
	for i, a := range files {
		for _, b := range files[:i] {
			if a.name != "" && b.name != "" && sameFile(a.name, b.name) {
				return fmt.Errorf("%s and %s are both %s, and one would destroy the other; give another name", b.flag, a.flag, a.name)
			}
		}
	}
	return nil
}

// sameFile reports whether two names are, or will be, one regular file.
func sameFile(a, b string) bool {
	as, aerr := os.Stat(a)
	bs, berr := os.Stat(b)
	if aerr == nil && berr == nil {
		return as.Mode().IsRegular() && os.SameFile(as, bs)
	}
	aAbs, aerr := filepath.Abs(a)
	bAbs, berr := filepath.Abs(b)
	return aerr == nil && berr == nil && aAbs == bAbs
}

// create creates the files, before anything is sent. On an error none stays open.
func (o outputNames) create() (out *outputs, err error) {
	out = &outputs{}
	if o.tx != "" {
		out.tx, err = capture.Create(o.tx)
	}
	if o.rx != "" && err == nil {
		out.rx, err = capture.Create(o.rx)
	}
	if o.result != "" && err == nil {
		if out.result, err = capture.CreateOutput(o.result); err != nil {
			err = fmt.Errorf("create the result file: %w", err)
		}
	}
	if err != nil {
		return nil, &exitError{Environment, out.close(err)}
	}
	return out, nil
}

// captures are the files for the engine; nil where there is none.
func (o *outputs) captures() (tx, rx engine.Capture) {
	if o.tx != nil {
		tx = o.tx
	}
	if o.rx != nil {
		rx = o.rx
	}
	return tx, rx
}

// finish writes the result, if there is one, and closes all. It adds what goes wrong to err.
func (o *outputs) finish(err error, done bool, write func(io.Writer) error) error {
	if o.result != nil && done {
		err = errors.Join(err, write(o.result))
	}
	return o.close(err)
}

// close closes all and adds what goes wrong to err.
func (o *outputs) close(err error) error {
	for _, f := range []*capture.File{o.tx, o.rx} {
		if f == nil {
			continue
		}
		if closing := f.Close(); closing != nil && !errors.Is(err, closing) {
			err = errors.Join(err, closing)
		}
	}
	if o.result != nil {
		err = errors.Join(err, o.result.Close())
	}
	return err
}

// await does f, but ends when ctx does, even if f cannot: it may be waiting for the other end of a pipe. Then the process is
// about to end, and what f uses must not be touched. When ctx has ended before, f is not begun: it would make files that nobody
// waits for.
func await(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
