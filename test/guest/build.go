package guest

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"bare.wire/test/guest/internal/debian"
)

// testBinary is a test binary of this package that runs without a library: this one, or one that is built into dir.
func testBinary(ctx context.Context, dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the test binary: %w", err)
	}
	settings := buildSettings()
	if static(self) && settings["-race"] != "true" && settings["GOARCH"] == "amd64" {
		return self, nil
	}
	name := filepath.Join(dir, "test.binary")
	// go test runs a test in the directory of its package.
	args := []string{"test", "-c", "-o", name}
	if tags := settings["-tags"]; tags != "" {
		args = append(args, "-tags", tags)
	}
	return name, goCommand(ctx, append(args, ".")...)
}

// static says whether a program needs no other file to run.
func static(name string) bool {
	f, err := elf.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return false
		}
	}
	return true
}

// buildSettings is how this binary was built.
func buildSettings() map[string]string {
	m := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			m[s.Key] = s.Value
		}
	}
	return m
}

// goCommand runs the go command for programs that run in a guest, or anywhere: without cgo, and so without libraries.
func goCommand(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its directory then
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %q: %w\n%s", args, err, out)
	}
	return nil
}

// Build builds a command of this module, to be run on the host or put into a guest, and returns the file. Arguments of go build, such as -overlay
// or -tags, may follow.
func Build(t *testing.T, pkg string, args ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), filepath.Base(pkg))
	all := append([]string{"build", "-buildvcs=false", "-o", name}, args...)
	ctx, cancel := testContext(t)
	defer cancel()
	if err := goCommand(ctx, append(all, pkg)...); err != nil {
		t.Fatal(err)
	}
	return name
}

// Nicsim builds the software cards' command, bare.wire/cmd/nicsim, and returns the file. Arguments of go build may follow.
func Nicsim(t *testing.T, args ...string) string {
	t.Helper()
	return Build(t, "bare.wire/cmd/nicsim", args...)
}

// Debian returns directories into which packages of Debian have been unpacked, one for each; they are not installed, and what they depend on is not
// brought. They belong to the cache: nothing may be written there.
func Debian(t *testing.T, names ...string) []string {
	t.Helper()
	ctx, cancel := testContext(t)
	defer cancel()
	c, err := debian.Open()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := c.Packages(ctx, names...)
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}
