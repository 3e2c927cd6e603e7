// Package test holds the tests that look at the whole tree: what each part may import, and its form.
package test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the path of the module that is looked at.
const module = "bare.wire"

// rooms says what each room may import from the others; docs/architecture.md says the same in words. A room may always import
// from itself. The room of a package is the longest row that its path begins with. Tests may import any room.
var rooms = map[string][]string{
	// What people use.
	"cmd/internal": {}, // what the command lines have in common
	"cmd/pktgen":   {"cmd/internal", "device", "sim", "ixgbe", "ixgbe/reg", "virtio", "pci", "nic", "wire", "mbuf", "vtop", "hugepage", "clock", "netstack", "copier"},
	"cmd/nicsim":   {"cmd/internal", "sim", "wire", "mbuf", "vtop", "hugepage", "clock", "ixgbe/reg", "virtio/spec"},
	"examples":     {"device", "netstack", "copier", "sim", "ixgbe", "virtio", "pci", "nic", "wire", "mbuf", "vtop", "hugepage", "clock"},
	"appliance":    {"device", "netstack", "copier", "sim", "ixgbe", "virtio", "pci", "nic", "wire", "mbuf", "vtop", "hugepage", "clock"},

	// The stack.
	"netstack": {"nic", "mbuf", "clock", "wire", "copier", "vtop", "hugepage"},
	"copier":   {"mbuf", "vtop", "clock"},

	// Devices, real and in software.
	"device":      {"ixgbe", "virtio", "sim", "pci", "nic", "wire", "mbuf", "vtop", "hugepage", "clock", "ixgbe/reg", "virtio/spec"},
	"ixgbe":       {"nic", "mbuf", "vtop", "hugepage", "pci", "clock", "ixgbe/reg"},
	"virtio":      {"nic", "mbuf", "vtop", "hugepage", "pci", "clock", "virtio/spec"},
	"sim":         {"clock", "mbuf", "vtop", "hugepage", "ixgbe/reg", "virtio/spec", "wire"},
	"pci":         {"vtop", "hugepage"},
	"ixgbe/reg":   {},
	"virtio/spec": {},

	// What they stand on.
	"nic":         {"mbuf", "clock"},
	"nic/nictest": {"nic", "mbuf", "clock", "wire"}, // what has to come out of a card is computed
	"wire":        {"mbuf"},
	"mbuf":        {"hugepage", "vtop"},
	"vtop":        {"hugepage"},
	"hugepage":    {},
	"clock":       {},

	"test": {},
}

// foreign says which modules of others a room may import, by the beginning of the import path; x/sys is free everywhere.
var foreign = map[string][]string{
	"pci": {"github.com/u-root/u-root/pkg/pci"},
	"cmd": {
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/HdrHistogram/hdrhistogram-go", "github.com/gopacket/gopacket",
		"github.com/prometheus/client_golang", "go.yaml.in/yaml/v3", "golang.org/x/term",
	},
	"appliance": {"github.com/prometheus/client_golang", "github.com/insomniacslk/dhcp", "github.com/miekg/dns"},
}

// foreignTests says which modules of others tests may import besides.
var foreignTests = []string{
	"github.com/stretchr/testify", "golang.org/x/net", "golang.org/x/crypto", "github.com/gopacket/gopacket",
	"github.com/rogpeppe/go-internal", "github.com/santhosh-tekuri/jsonschema/v6", "github.com/HdrHistogram/hdrhistogram-go",
}

// listed is what `go list -json` says about a package.
type listed struct {
	ImportPath, Name, Doc, Dir                               string
	Imports, TestImports, XTestImports                       []string
	GoFiles, TestGoFiles, XTestGoFiles, IgnoredGoFiles       []string
	CgoFiles, CFiles, CXXFiles, HFiles, SwigFiles, SysoFiles []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	// The go command keeps the results of tests, and looks at what a test opened to see whether they still hold. It does not see
	// what `go list` opens, so the directories are looked at here too.
	if err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && name != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-e", "-json", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatal("go list found no package")
	}
	return all
}

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range packages(t) {
		for _, fault := range importFaults(p) {
			t.Error(fault)
		}
	}
}

// importFaults says in words which imports of a package break the rules.
func importFaults(p listed) (faults []string) {
	rel := strings.TrimPrefix(p.ImportPath, module+"/")
	if rel == module { // the root holds documentation at most
		return nil
	}
	home := roomOf(rel)
	if home == "" {
		return []string{p.ImportPath + " is in no room: add it to the table, and to docs/architecture.md"}
	}
	for _, imp := range p.Imports {
		if other, ours := strings.CutPrefix(imp, module+"/"); ours {
			// A program may stand on everything, wherever it lies; nothing may stand on a program.
			if to := roomOf(other); to != home && p.Name != "main" && !slices.Contains(rooms[home], to) {
				faults = append(faults, p.ImportPath+" imports "+imp+", which room "+home+" may not")
			}
			continue
		}
		if isForeign(imp) && !allowed(imp, foreign[firstOf(rel)]) {
			faults = append(faults, p.ImportPath+" imports "+imp+": library rooms import the standard library and x/sys only")
		}
	}
	for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
		if isForeign(imp) && !allowed(imp, foreign[firstOf(rel)]) && !allowed(imp, foreignTests) {
			faults = append(faults, "the tests of "+p.ImportPath+" import "+imp+", which is not on the list")
		}
	}
	return faults
}

// roomOf is the row of the table that a package path below the module belongs to, or "".
func roomOf(rel string) string {
	for ; rel != "."; rel = path.Dir(rel) {
		if _, ok := rooms[rel]; ok {
			return rel
		}
	}
	return ""
}

func firstOf(rel string) string {
	first, _, _ := strings.Cut(rel, "/")
	return first
}

// isForeign says whether an import path belongs to a module of others: its first element has a dot.
func isForeign(imp string) bool {
	return strings.Contains(firstOf(imp), ".") && imp != module && !strings.HasPrefix(imp, module+"/")
}

func allowed(imp string, list []string) bool {
	for _, a := range append(list, "golang.org/x/sys") {
		if imp == a || strings.HasPrefix(imp, a+"/") {
			return true
		}
	}
	return false
}

func TestTheImportRulesBite(t *testing.T) {
	for _, c := range []struct {
		name, pkg, kind string
		imports, tests  []string
		faults          int
	}{
		{"downwards", "mbuf", "mbuf", []string{"bare.wire/vtop", "unsafe", "golang.org/x/sys/unix"}, nil, 0},
		{"upwards", "mbuf", "mbuf", []string{"bare.wire/nic"}, nil, 1},
		{"sideways", "wire", "wire", []string{"bare.wire/clock"}, nil, 1},
		{"inside a room", "sim/nic82599", "nic82599", []string{"bare.wire/sim/link", "bare.wire/sim"}, nil, 0},
		{"a sub-room is not its parent", "sim/nic82599", "nic82599", []string{"bare.wire/ixgbe/reg", "bare.wire/ixgbe"}, nil, 1},
		{"a sub-room has a row of its own", "ixgbe/reg", "reg", []string{"bare.wire/ixgbe"}, nil, 1},
		{"a program stands on everything", "ixgbe/internal/costbench", "main", []string{"bare.wire/device"}, nil, 0},
		{"tests may look around", "mbuf", "mbuf", nil, []string{"bare.wire/device"}, 0},
		{"foreign in a library", "ixgbe", "ixgbe", []string{"github.com/spf13/pflag"}, nil, 1},
		{"foreign in a program", "cmd/pktgen/internal/x", "x", []string{"github.com/spf13/pflag"}, nil, 0},
		{"foreign and unlisted in a program", "cmd/pktgen", "main", []string{"example.org/x"}, nil, 1},
		{"a name that only begins alike", "cmd/pktgen", "main", []string{"github.com/spf13/cobrax"}, nil, 1},
		{"foreign in a test", "wire", "wire", nil, []string{"github.com/gopacket/gopacket/layers"}, 0},
		{"foreign and unlisted in a test", "wire", "wire", nil, []string{"example.org/x"}, 1},
		{"no room", "attic", "attic", nil, nil, 1},
	} {
		got := importFaults(listed{ImportPath: module + "/" + c.pkg, Name: c.kind, Imports: c.imports, XTestImports: c.tests})
		if len(got) != c.faults {
			t.Errorf("%s: got %q, want %d faults", c.name, got, c.faults)
		}
	}
}
