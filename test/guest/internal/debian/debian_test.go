package debian

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// The programs of a machine whose packages are text files. They note in $LOG what they were asked for.
var programs = map[string]string{
	// The package "stale" is found after an update only; the first download of "broken" is cut off.
	"apt-get": `echo "apt-get $*" >> "$LOG"
case "$*" in
*update) touch "$STATE/updated";;
*download*)
	for name; do :; done
	if [ "$name" = absent ]; then echo "E: Unable to locate package absent" >&2; exit 100; fi
	if [ "$name" = stale ] && [ ! -e "$STATE/updated" ]; then echo "E: 404" >&2; exit 100; fi
	if [ "$name" = broken ] && [ ! -e "$STATE/tried" ]; then touch "$STATE/tried"; echo cut > broken_1.deb; exit 0; fi
	echo "whole $name" > "${name}_1.deb";;
esac`,
	"apt-cache": `echo "apt-cache $*" >> "$LOG"; printf '%s\n  Depends: %s-6.1\n' "$2" "$2"`,
	"dpkg-deb": `grep -q whole "$2" || { echo "dpkg-deb: error: unexpected end of file" >&2; exit 2; }
mkdir -p "$3/usr/share/doc/x" "$3/bin" && cp "$2" "$3/bin/program"`,
	"sudo": `shift; exec "$@"`,
}

// machine makes PATH a directory with only the named programs, and what those need.
func machine(t *testing.T, names ...string) (c *Cache, log func() string) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(bin, n), []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+strings.ReplaceAll(programs[n], `exec "$@"`, `exec "`+bin+`/$1" "$3"`)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv("STATE", dir)
	t.Setenv("LOG", filepath.Join(dir, "log"))
	t.Setenv(CacheVariable, filepath.Join(dir, "cache"))
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return c, func() string {
		b, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(b)
	}
}

var all = []string{"apt-get", "apt-cache", "dpkg-deb", "sudo"}

// leftovers are files in the cache beside unpacked packages and locks.
func leftovers(t *testing.T, c *Cache) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(c.Dir, "fetching-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPackageIsFetchedOnce(t *testing.T) {
	c, log := machine(t, all...)
	for range 2 {
		dir, err := c.Package(t.Context(), "tool", false)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "bin/program")); err != nil || string(b) != "whole tool\n" {
			t.Errorf("unpacked: %q, %v", b, err)
		}
		if isDir(filepath.Join(dir, "usr/share/doc")) {
			t.Error("the documentation was kept")
		}
	}
	if n := strings.Count(log(), "download"); n != 1 || leftovers(t, c) != nil {
		t.Errorf("%d downloads, want 1; left: %v\n%s", n, leftovers(t, c), log())
	}
}

func TestNewestIsResolved(t *testing.T) {
	c, log := machine(t, all...)
	dir, err := c.Package(t.Context(), "linux-image", true)
	if err != nil || filepath.Base(dir) != "linux-image" || !strings.Contains(log(), "download linux-image-6.1\n") {
		t.Errorf("got %s, %v\n%s", dir, err, log())
	}
}

func TestListsOfPackagesAreFetchedWhenTheyAreOld(t *testing.T) {
	c, log := machine(t, all...)
	if _, err := c.Package(t.Context(), "stale", false); err != nil || !strings.Contains(log(), "update") {
		t.Errorf("got %v\n%s", err, log())
	}
}

func TestBrokenDownloadIsFetchedAgain(t *testing.T) {
	c, log := machine(t, all...)
	if _, err := c.Package(t.Context(), "broken", false); err != nil || strings.Count(log(), "download") != 2 {
		t.Errorf("got %v\n%s", err, log())
	}
}

func TestPackageThatDoesNotExist(t *testing.T) {
	c, _ := machine(t, all...)
	_, err := c.Package(t.Context(), "absent", false)
	if err == nil || !strings.Contains(err.Error(), "Unable to locate") || !strings.Contains(err.Error(), "dpkg-deb -x") || leftovers(t, c) != nil {
		t.Errorf("got %v; left: %v", err, leftovers(t, c))
	}
	if _, err := c.Package(t.Context(), "../x", false); err == nil {
		t.Error("a path was taken for a name")
	}
}

func TestMachineWithoutApt(t *testing.T) {
	c, _ := machine(t)
	if _, err := c.Package(t.Context(), "tool", false); err == nil || !strings.Contains(err.Error(), "no apt-get here") {
		t.Errorf("got %v", err)
	}
	// Unpacked by hand, it is found.
	if err := os.MkdirAll(filepath.Join(c.Dir, "deb/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Package(t.Context(), "tool", false); err != nil {
		t.Error(err)
	}
}

func TestManyWantOnePackage(t *testing.T) {
	c, log := machine(t, all...)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := c.Package(t.Context(), "tool", false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(log(), "download"); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
}

func TestLockIsWaitedForUntilTheContextEnds(t *testing.T) {
	c, _ := machine(t)
	unlock, err := c.Lock(t.Context(), "guest")
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("no time left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := c.Lock(ctx, "guest"); !errors.Is(err, why) {
		t.Errorf("a lock that is held: %v", err)
	}
	unlock()
	unlock, err = c.Lock(t.Context(), "guest")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestTurnsAreTaken(t *testing.T) {
	c, _ := machine(t)
	unlock, err := c.Turn(t.Context(), "guest")
	if err != nil {
		t.Fatal(err)
	}
	other := make(chan func())
	go func() {
		u, err := c.Turn(t.Context(), "guest")
		if err != nil {
			t.Error(err)
		}
		other <- u
	}()
	// Until the other one waits: then nobody else can be next.
	for {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		next, err := c.Lock(ctx, "guest-next")
		if err != nil {
			break
		}
		next()
		runtime.Gosched()
	}
	unlock()
	done := make(chan func())
	go func() {
		u, err := c.Turn(t.Context(), "guest")
		if err != nil {
			t.Error(err)
		}
		done <- u
	}()
	select {
	case <-done:
		t.Fatal("the one that had it had it again before the one that waited")
	case u := <-other:
		u()
	}
	(<-done)()
}
