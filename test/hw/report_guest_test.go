//go:build guest

package hw

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"bare.wire/clock"
	"bare.wire/test/guest"
)

// card is the first of the two in the guest; nobody drives the second, which is at the other end of the wire.
const card = "0000:00:04.0"

// TestGuestHardwareReport is what the owner of a card does, with a software card behind VFIO and VT-d.
func TestGuestHardwareReport(t *testing.T) {
	m := guest.Machine{
		IOMMU: true, Modules: []string{"vfio-pci", "vfio_iommu_type1"}, HugePages: 64, CPUs: 1, ShareRAM: true, Timeout: 9 * time.Minute,
	}
	if !guest.Inside() {
		dir, err := os.MkdirTemp("", "hw-") // a socket's name has to be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		socket := filepath.Join(dir, "control")
		m.Wrap = []string{guest.Nicsim(t), "qemu", "--wire", "pair", "--control", socket, "--summary", "none", "--"}
		m.Answer = func(question string) string {
			a, err := relay(socket, question)
			if err != nil {
				return fmt.Sprintf(`{"ok":false,"error":%q}`, err)
			}
			return a
		}
	}
	guest.Run(t, m, func(t *testing.T) {
		t.Run("not bound", func(t *testing.T) {
			out, _, err := run(t, "^TestCard$")
			if err == nil || !strings.Contains(out, "devices bind "+card) {
				t.Errorf("%v; the next step is not named: %s", err, out)
			}
		})
		if err := guest.BindVFIO(card); err != nil {
			t.Fatal(err)
		}
		t.Run("all passed", testAllPassed)
		t.Run("a fault is found", testFaultIsFound)
	})
}

func testAllPassed(t *testing.T) {
	chosen := "^TestCard$/^(" + short + ")$" // BAREWIRE_FULL chooses all
	if os.Getenv("BAREWIRE_FULL") != "" {
		chosen = "^TestCard$"
	}
	out, report, err := run(t, chosen)
	if err != nil || !strings.Contains(lastLine(report), "RESULT: all ") {
		t.Fatalf("%v, want all passed: %s\nreport:\n%s", err, out, report)
	}
	for _, want := range []string{
		"8086:10fb", "revision 0x01", "kernel ", "IOMMU dmar", "eTrack", "MSI-X: ", "passed  FramesOfEveryLength", "passed  EachQueueWakes",
		"HLREG0", "not on one port: Removal", "access " + card, "link as found",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	if mac := regexp.MustCompile(`: MAC ([0-9a-fx]+),`).FindStringSubmatch(report); mac == nil || !strings.HasSuffix(mac[1], "xxxxxx") {
		t.Errorf("the MAC is to be masked: %q", mac)
	}
	for _, m := range ask(t, `{"do":"misuse","card":0}`).Misuse {
		t.Errorf("the card holds against the driver: %s", m.Text)
	}
	if n := ask(t, `{"do":"wire"}`).AToB.Frames; n != 0 {
		t.Errorf("%d frames went out on the wire", n)
	}
	if os.Getenv("BAREWIRE_FULL") != "" {
		t.Log(report)
	}
	t.Logf("%s; report of %d bytes", lastLine(report), len(report))
}

func testFaultIsFound(t *testing.T) {
	ask(t, `{"do":"fault","card":0,"name":"rx-byte-64"}`)
	out, report, err := run(t, "^TestCard$/^(LoopbackIsOn|FramesOfEveryLength)$")
	if err == nil || !strings.Contains(lastLine(report), "RESULT: FAILED: FramesOfEveryLength; 1 passed") {
		t.Errorf("%v, want FAILED: %s\nreport:\n%s", err, out, report)
	}
	if !strings.Contains(report, "byte 64 is") {
		t.Errorf("the report does not say what is wrong:\n%s", report)
	}
}

// run runs this very binary as make hw does, and returns what it prints and reports.
func run(t *testing.T, tests string) (out, report string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run", tests)
	file := filepath.Join(t.TempDir(), "report.txt")
	cmd.Env = append(os.Environ(), "PCI="+card, "REPORT="+file)
	b, err := cmd.CombinedOutput()
	r, _ := os.ReadFile(file) // none where the card was refused
	return string(b), string(r), err
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// relay puts one line to nicsim and returns its answer.
func relay(socket, line string) (string, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(clock.Real().Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// asked is what nicsim answers; each request fills some of it.
type asked struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error"`
	Misuse []struct {
		Text string `json:"text"`
	} `json:"misuse"`
	AToB struct {
		Frames uint64 `json:"frames"`
	} `json:"a_to_b"`
}

// ask puts a request to nicsim, from inside the guest.
func ask(t testing.TB, question string) (a asked) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	text, err := guest.Ask(ctx, question)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil || !a.OK {
		t.Fatalf("nicsim on %s: %s, %v", question, text, err)
	}
	return a
}
