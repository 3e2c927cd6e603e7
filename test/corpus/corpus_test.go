// Package corpus sends real captures through pktgen replay: file, buffers, the ixgbe driver, the software card, the wire, and
// all the way back into a file. What comes out has to be what went in.
//
// The captures are those of gopacket's tests, which lie in the module cache; with BAREWIRE_FULL=1 also those of Debian's
// python3-dpkt and of tcpdump's tests, which fetch.sh brings. None is kept here.
package corpus

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// What an 82599 does with a frame (bytes without FCS).
const (
	shortest = 14   // shorter ones have no Ethernet header
	padded   = 60   // shorter ones are padded to it
	longest  = 9724 // longer ones are not sent
	control  = 0x8808
)

// expected is what a capture has to come out as.
type expected struct {
	packets, cut, short, long, other int // as read
	sent, padded, pause, control     int
	frames                           [][]byte // as received
	broken                           error    // why pcapgo reads no further
}

// errNoCapture: pcapgo does not know the file, or it is not Ethernet.
var errNoCapture = errors.New("no Ethernet capture")

type packetReader interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// open opens a capture with pcapgo, and returns how to tell the link type of a packet.
func open(file []byte) (packetReader, func(gopacket.CaptureInfo) layers.LinkType, error) {
	if len(file) >= 4 && binary.BigEndian.Uint32(file) == 0x0a0d0d0a {
		r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true})
		return r, func(ci gopacket.CaptureInfo) layers.LinkType { return ci.AncillaryData[0].(layers.LinkType) }, err
	}
	r, err := pcapgo.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, nil, err
	}
	return r, func(gopacket.CaptureInfo) layers.LinkType { return r.LinkType() }, nil
}

// expect reads a capture and works out what must come of it.
func expect(t *testing.T, name string) (*expected, error) {
	t.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, link, err := open(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCapture, err)
	}
	e := &expected{}
	for {
		data, ci, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			e.broken = err
			break
		}
		e.packets++
		if link(ci) != layers.LinkTypeEthernet {
			e.other++
			continue
		}
		e.add(data, ci)
	}
	if e.packets == e.other {
		return e, fmt.Errorf("%w: %d packets, none of Ethernet", errNoCapture, e.packets)
	}
	return e, nil
}

func (e *expected) add(data []byte, ci gopacket.CaptureInfo) {
	if ci.CaptureLength < ci.Length {
		e.cut++
	}
	switch n := len(data); {
	case n < shortest:
		e.short++
		return
	case n > longest:
		e.long++
		return
	case n < padded:
		e.padded++
	}
	e.sent++
	switch {
	case binary.BigEndian.Uint16(data[12:]) != control:
		e.frames = append(e.frames, append(data, make([]byte, max(padded-len(data), 0))...))
	case bytes.HasPrefix(data, []byte{0x01, 0x80, 0xc2, 0, 0, 1}):
		e.pause++
	default:
		e.control++
	}
}

// result is what the test looks at of pktgen's.
type result struct {
	File    struct{ Packets, Cut int }
	Tx      struct{ Packets, Padded, Pause, Mac_control int }
	Rx      struct{ Packets int }
	NotSent struct{ Too_short, Too_long, Not_ethernet, Unsent int } `json:"not_sent"`
	Missing int
	Valid   bool
}

// run replays a capture and returns the exit code, the result and what came out.
func run(t *testing.T, pktgen, name string) (int, *result, [][]byte, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "rx.pcap")
	cmd := exec.Command(pktgen, "replay", "-o", "json", "-i", "0", "--max-gap", "1s", "--pcap-rx", out, name, "sim:?clock=virtual")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if stdout.Len() == 0 {
		return code, nil, nil, stderr.String()
	}
	r := &result{}
	if err := json.Unmarshal(stdout.Bytes(), r); err != nil {
		t.Fatalf("%v in %s", err, stdout.String())
	}
	file, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	in, _, err := open(file)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for {
		data, _, err := in.ReadPacketData()
		if err == io.EOF {
			return code, r, frames, stderr.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, data)
	}
}

// check holds what came of one capture against what had to.
func check(t *testing.T, pktgen, name string) {
	e, none := expect(t, name)
	code, r, frames, said := run(t, pktgen, name)
	switch {
	case none != nil:
		if code != 2 && !(code == 4 && e != nil && e.broken != nil) || r != nil || said == "" {
			t.Errorf("%v, but pktgen ends with %d and says %q", none, code, said)
		}
		return
	case r == nil:
		t.Fatalf("code %d: %s", code, said)
	case e.broken == nil && e.sent == 0:
		if code != 5 || r.Valid {
			t.Errorf("nothing in it can be sent, but the code is %d: %s", code, said)
		}
	case e.broken == nil && (code != 0 || !r.Valid):
		t.Errorf("code %d: %s", code, said)
	case e.broken != nil && (code != 4 || r.Valid || !strings.Contains(said, filepath.Base(name))):
		t.Errorf("it is readable up to %q only, but the code is %d: %s", e.broken, code, said)
	}
	if len(frames) != len(e.frames) {
		t.Errorf("%d frames came back, want %d", len(frames), len(e.frames))
	}
	for i := range min(len(frames), len(e.frames)) {
		if !bytes.Equal(frames[i], e.frames[i]) {
			t.Fatalf("frame %d came back different: %d bytes\n%x\nwant %d\n%x", i, len(frames[i]), frames[i], len(e.frames[i]), e.frames[i])
		}
	}
	got := []int{r.File.Packets, r.File.Cut, r.NotSent.Too_short, r.NotSent.Too_long, r.NotSent.Not_ethernet, r.NotSent.Unsent,
		r.Tx.Packets, r.Tx.Padded, r.Tx.Pause, r.Tx.Mac_control, r.Rx.Packets, r.Missing}
	want := []int{e.packets, e.cut, e.short, e.long, e.other, 0, e.sent, e.padded, e.pause, e.control, len(e.frames), 0}
	for i, what := range []string{"packets", "cut", "too short", "too long", "not Ethernet", "unsent", "sent", "padded", "pause", "MAC control", "received", "missing"} {
		if got[i] != want[i] {
			t.Errorf("%s: %d, want %d", what, got[i], want[i])
		}
	}
	if sum := r.Tx.Packets + r.NotSent.Too_short + r.NotSent.Too_long + r.NotSent.Not_ethernet; sum != r.File.Packets {
		t.Errorf("the counts add up to %d, and the file has %d packets", sum, r.File.Packets)
	}
	t.Logf("%d packets: %+v %+v", r.File.Packets, r.Tx, r.NotSent)
}

// build builds pktgen.
func build(t *testing.T) string {
	t.Helper()
	pktgen := filepath.Join(t.TempDir(), "pktgen")
	if out, err := exec.Command("go", "build", "-o", pktgen, "bare.wire/cmd/pktgen").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return pktgen
}

// captures lists what may be a capture below dir.
func captures(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch filepath.Ext(name) {
		case ".pcap", ".pcapng", ".cap", ".dmp":
			if d.Type().IsRegular() {
				names = append(names, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// replayAll replays the captures below dir, at least so many of which must be of Ethernet.
func replayAll(t *testing.T, dir string, least int) {
	pktgen := build(t)
	var usable atomic.Int64
	t.Run("captures", func(t *testing.T) {
		for _, name := range captures(t, dir) {
			rel, err := filepath.Rel(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(rel, func(t *testing.T) {
				t.Parallel()
				if _, err := expect(t, name); err == nil {
					usable.Add(1)
				}
				check(t, pktgen, name)
			})
		}
	})
	if n := usable.Load(); n < int64(least) {
		t.Errorf("%d captures of Ethernet, want at least %d", n, least)
	} else {
		t.Logf("%d captures of Ethernet", n)
	}
}

// source is where captures come from, and how many of them at least are of Ethernet.
type source struct {
	name  string
	dir   func(t *testing.T) string
	least int
}

// sources are gopacket's module, which is there whenever these tests are, and, in full, what fetch.sh brings.
func sources() []source {
	all := []source{{"gopacket", gopacketDir, 20}}
	if os.Getenv("BAREWIRE_FULL") != "" {
		all = append(all, source{"dpkt", fetched, 3}, source{"tcpdump", fetched, 300})
	}
	return all
}

func gopacketDir(t *testing.T) string {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/gopacket/gopacket").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}

// fetched brings the captures of other projects, once, and returns those of the source that the test is named for.
func fetched(t *testing.T) string {
	dir, err := filepath.Abs("../../.tools/corpus")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("./fetch.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("fetch.sh: %v\n%s", err, out)
	}
	return filepath.Join(dir, filepath.Base(t.Name()))
}

func TestCapturesComeBackByteByByte(t *testing.T) {
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) { replayAll(t, s.dir(t), s.least) })
	}
}
