package guest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bare.wire/test/guest/internal/gotest"
	"bare.wire/test/guest/internal/vm"
)

// reportTime is kept back of the time that go test gives a package.
const reportTime = 15 * time.Second

var errNoTime = errors.New("go test's -timeout is about to end this package: the guest is stopped before")

const (
	keepVariable    = "BAREWIRE_GUEST_KEEP"    // not empty: keep the directory of a guest that did well, too
	verboseVariable = "BAREWIRE_GUEST_VERBOSE" // not empty: show what the test in the guest prints while it runs
)

// Where things are in the guest.
const (
	binaryFile = "/test/test.binary"
	binaryDir  = "/test"
)

// onHost boots the guest and makes its results those of t.
func onHost(t *testing.T, m Machine) {
	t.Helper()
	once(t)
	ctx, cancel := testContext(t)
	defer cancel()
	binary, err := testBinary(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out := &collector{}
	if os.Getenv(verboseVariable) != "" {
		out.tee = os.Stderr
	}
	res, err := vm.Run(ctx, m.spec(t.Name(), binary, out))
	tests, loose := out.tests()
	if err != nil {
		// What was known before the guest failed is worth knowing.
		if self := find(tests, t.Name()); self != nil {
			say(t, self, "it was running in the guest when the guest failed")
		}
		t.Fatalf("%v%s", err, printed(loose))
	}
	t.Cleanup(func() { tidy(t, res.Dir, out.raw()) }) // replay does not return when the test was skipped
	if res.Crashes > 0 {
		t.Logf("QEMU crashed or stood still %d times before the guest was there, and was started again (docs/guest.md)", res.Crashes)
	}
	if m.Out != "" {
		if err := copyOut(m.Out, filepath.Join(res.Dir, "out")); err != nil {
			t.Error(err)
		}
	}
	replay(t, tests, loose, res)
}

// tidy removes the directory of a guest, or says where it is when the test failed.
func tidy(t *testing.T, dir, output string) {
	var err error
	if t.Failed() || os.Getenv(keepVariable) != "" {
		err = os.WriteFile(filepath.Join(dir, "output.txt"), []byte(output), 0o666)
		t.Logf("everything about this guest is in %s", dir)
	} else {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		t.Error(err)
	}
}

// running are the tests that have called Run: a second guest for the same test could not tell which function is meant.
var running sync.Map

func once(t *testing.T) {
	t.Helper()
	if _, twice := running.LoadOrStore(t.Name(), true); twice {
		t.Fatalf("%s calls guest.Run twice: give each machine a subtest", t.Name())
	}
	t.Cleanup(func() { running.Delete(t.Name()) })
}

// spec is the guest for a test.
func (m Machine) spec(test, binary string, out *collector) vm.Spec {
	limit := m.Timeout
	if limit == 0 {
		limit = defaultTimeout
	}
	files := maps.Clone(m.Files)
	if files == nil {
		files = map[string]string{}
	}
	files[binaryFile] = binary
	if st, err := os.Stat("testdata"); err == nil && st.IsDir() {
		files[binaryDir+"/testdata"] = "testdata"
	}
	// The framework's own limit comes first: it names the tests that were running.
	args := []string{binaryFile, "-test.v=test2json", "-test.run=" + pattern(test), "-test.timeout=" + limit.String()}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	return vm.Spec{
		Kernel: m.Kernel.flavour(), Modules: m.Modules, ModuleFiles: m.ModuleFiles, IOMMU: m.IOMMU, Cmdline: m.Cmdline, Memory: m.Memory,
		HugePages: m.HugePages, CPUs: m.CPUs, ShareRAM: m.ShareRAM, QEMU: m.QEMU, Wrap: m.Wrap, Restarts: m.Restarts, Files: files,
		Command: append(args, ownFlags()...), Env: append(projectVariables(), insideVariable+"="+test), Dir: binaryDir,
		Limit: limit + 5*time.Second, Output: out, Again: out.reset, Answer: m.Answer,
	}
}

// pattern is a -test.run that matches one test, and of its subtests those that this process was asked for.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	if f := flag.Lookup("test.run"); f != nil {
		if asked := strings.Split(f.Value.String(), "/"); len(asked) > len(parts) {
			parts = append(parts, asked[len(parts):]...)
		}
	}
	return strings.Join(parts, "/")
}

// ownFlags are the flags of the test binary that are not the framework's, as they were given.
func ownFlags() (args []string) {
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// projectVariables are the environment variables that choose what tests do.
func projectVariables() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return !strings.HasPrefix(v, "BAREWIRE_") })
}

// collector takes what the test binary in the guest prints.
type collector struct {
	mu     sync.Mutex
	all    bytes.Buffer
	parser gotest.Parser
	tee    io.Writer
}

func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tee != nil {
		c.tee.Write(p)
	}
	c.all.Write(p)
	return c.parser.Write(p)
}

// reset forgets the results of before a restart; what was printed stays.
func (c *collector) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parser = gotest.Parser{}
}

func (c *collector) tests() ([]*gotest.Test, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parser.Tests()
}

func (c *collector) raw() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

// replay makes the results of the guest those of t.
func replay(t *testing.T, tests []*gotest.Test, loose string, res *vm.Result) {
	t.Helper()
	self := find(tests, t.Name())
	switch {
	case res.Failure != "":
		t.Errorf("the test could not be started in the guest: %s", res.Failure)
		return
	case self == nil:
		t.Errorf("the test binary ended with %s in the guest, and did not run %s%s", how(res), t.Name(), printed(loose))
		return
	}
	// Which of them a death belongs to is not known: all that were running fail.
	died := ""
	if res.Overrun || res.Signal != "" || unfinished(self) {
		died = fmt.Sprintf("it was running in the guest when the test binary ended with %s", how(res))
		t.Errorf("the test binary ended with %s in the guest%s", how(res), printed(loose))
	}
	say(t, self, died)
	if res.Status != 0 && !t.Failed() {
		t.Errorf("the test binary ended with %s in the guest, though no test in it failed%s", how(res), printed(loose))
	}
}

// printed is the end of a message: what the binary printed that belongs to no test.
func printed(loose string) string {
	if loose = strings.TrimSpace(loose); loose == "" {
		return ""
	}
	return "\nbesides its tests' own output, the test binary printed:\n" + loose
}

// how says how a command ended.
func how(res *vm.Result) string {
	s := fmt.Sprintf("status %d", res.Status)
	if res.Signal != "" {
		s = "signal " + res.Signal
	}
	if res.Overrun {
		s += " because its time was up"
	}
	return s
}

func find(tests []*gotest.Test, name string) *gotest.Test {
	for _, t := range tests {
		if t.Name == name {
			return t
		}
		if strings.HasPrefix(name, t.Name+"/") {
			return find(t.Subtests, name)
		}
	}
	return nil
}

func unfinished(t *gotest.Test) bool {
	return t.Verdict == gotest.None || slices.ContainsFunc(t.Subtests, unfinished)
}

// say says on the host what happened in the guest: the subtests, then the test's own result.
func say(t *testing.T, g *gotest.Test, died string) {
	t.Helper()
	for _, s := range g.Subtests {
		t.Run(s.Base(g), func(t *testing.T) { say(t, s, died) })
	}
	if out := strings.TrimRight(g.Output, "\n"); out != "" {
		t.Logf("in the guest:\n%s", out)
	}
	switch g.Verdict {
	case gotest.Fail:
		t.Fail()
	case gotest.Skip:
		t.SkipNow()
	case gotest.None:
		t.Error(died)
	}
}

// copyOut puts what a guest left where the test wants it.
func copyOut(to, from string) error {
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("what the guest put out: %w", err)
	}
	return nil
}
