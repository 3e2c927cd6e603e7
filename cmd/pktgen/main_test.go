package main

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strconv"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"bare.wire/cmd/pktgen/schema"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pktgen": main})
}

// TestScripts runs testdata/script: each file is a story of a user at a shell.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    exits,
			"schema":   followsSchema,
			"captured": captured,
		},
	})
}

// exits CODE ARG…: pktgen with these arguments ends with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits code arg...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec("pktgen", args[1:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("run pktgen: %v", err)
	}
	if got != want {
		ts.Fatalf("pktgen %v: exit code %d, want %d", args[1:], got, want)
	}
}

// schema [-devices|-doctor] FILE: the file is a result (of run, or of another command) as the schema describes it.
func followsSchema(ts *testscript.TestScript, neg bool, args []string) {
	form := schema.Run
	switch args[0] {
	case "-devices":
		form, args = schema.Devices, args[1:]
	case "-doctor":
		form, args = schema.Doctor, args[1:]
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(form))
	ts.Check(err)
	c := jsonschema.NewCompiler()
	ts.Check(c.AddResource("run.json", doc))
	s, err := c.Compile("run.json")
	ts.Check(err)
	got, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(ts.ReadFile(args[0]))))
	ts.Check(err)
	if err := s.Validate(got); (err != nil) != neg {
		ts.Fatalf("%s against the schema: %v", args[0], err)
	}
}

// captured FILE COUNT LENGTH: the pcap file holds that many frames of that length.
func captured(ts *testscript.TestScript, neg bool, args []string) {
	r, err := pcapgo.NewReader(bytes.NewReader([]byte(ts.ReadFile(args[0]))))
	ts.Check(err)
	count, err := strconv.Atoi(args[1])
	ts.Check(err)
	length, err := strconv.Atoi(args[2])
	ts.Check(err)
	n := 0
	for {
		b, _, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		ts.Check(err)
		if len(b) != length {
			ts.Fatalf("frame %d has %d bytes, want %d", n, len(b), length)
		}
		n++
	}
	if n != count {
		ts.Fatalf("%s holds %d frames, want %d", args[0], n, count)
	}
}
