// Package debian brings Debian packages into a cache, unpacked and not installed: kernels, and programs for guests. What is in the
// cache is used as it is; what is not is fetched by apt-get from wherever this machine gets its packages.
//
// Several processes may use one cache: a package appears in it whole or not at all, and is fetched by one process at a time.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cache is a directory of unpacked packages, and of locks.
type Cache struct{ Dir string }

// CacheVariable names the directory of the cache in the environment.
const CacheVariable = "BAREWIRE_CACHE"

// Open returns the cache of this user: $BAREWIRE_CACHE, else barewire in the directory that the system has for caches.
func Open() (*Cache, error) {
	dir := os.Getenv(CacheVariable)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil { // no HOME, as in some builds
			user = filepath.Join(os.TempDir(), fmt.Sprintf("cache-of-user-%d", os.Getuid()))
		}
		dir = filepath.Join(user, "barewire")
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("the cache of guests (%s names another directory): %w", CacheVariable, err)
	}
	return &Cache{dir}, nil
}

// lockPause is how long a process that waits for a lock sleeps between two tries.
const lockPause = 100 * time.Millisecond

// Lock takes the lock of the given name, which one process at a time has, and waits for it. The system gives it back when a process dies.
func (c *Cache) Lock(ctx context.Context, name string) (unlock func(), err error) {
	file := filepath.Join(c.Dir, name+".lock")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the lock %s: %w", name, err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("the lock %s: %w", file, err)
		}
		if err := pause(ctx, lockPause); err != nil {
			f.Close()
			return nil, fmt.Errorf("the lock %s is held by another process: %w", file, err)
		}
	}
}

// Turn is Lock, with turns: whoever lets go of it and wants it again at once comes after those who wait for it.
func (c *Cache) Turn(ctx context.Context, name string) (unlock func(), err error) {
	first, err := c.Lock(ctx, name+"-next")
	if err != nil {
		return nil, err
	}
	defer first()
	return c.Lock(ctx, name)
}

// pause waits in real time: other processes keep no virtual one.
func pause(ctx context.Context, d time.Duration) error {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-short.Done()
	return context.Cause(ctx)
}

// Package returns the directory into which a package has been unpacked; it is fetched if need be. With newest, the name is that of a package
// without content that depends on the one wanted, as linux-image-amd64 does; what it depends on then is what counts when it is fetched.
func (c *Cache) Package(ctx context.Context, name string, newest bool) (dir string, err error) {
	if !packageName.MatchString(name) {
		return "", fmt.Errorf("%q is no name of a Debian package", name)
	}
	dir = filepath.Join(c.Dir, "deb", name)
	if isDir(dir) {
		return dir, nil
	}
	unlock, err := c.Lock(ctx, "deb-"+name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(dir) { // somebody else was quicker
		return dir, nil
	}
	if err := c.fetch(ctx, name, newest, dir); err != nil {
		return "", fmt.Errorf("the Debian package %s: %w\n(a machine without it: unpack the package by hand, with `dpkg-deb -x FILE.deb %s`)", name, err, dir)
	}
	return dir, nil
}

// packageName is what Debian permits (policy §5.6.1).
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`)

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// fetch unpacks a package beside its place and moves it there.
func (c *Cache) fetch(ctx context.Context, name string, newest bool, dir string) error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("no %s here: %w", tool, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := c.fetchOnce(ctx, name, newest, dir)
	if err != nil && ctx.Err() == nil {
		// Without lists of packages, with old ones that name files which are gone, or after a broken download.
		if again := update(ctx); again != nil {
			return errors.Join(err, again)
		}
		err = c.fetchOnce(ctx, name, newest, dir)
	}
	return err
}

func (c *Cache) fetchOnce(ctx context.Context, name string, newest bool, dir string) error {
	tmp, err := os.MkdirTemp(c.Dir, "fetching-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if newest {
		if name, err = dependency(ctx, name); err != nil {
			return err
		}
	}
	if _, err := run(ctx, tmp, "apt-get", append(sandbox(), "-q", "download", name)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d files", name, len(debs))
	}
	root := filepath.Join(tmp, "root")
	if _, err := run(ctx, tmp, "dpkg-deb", "-x", debs[0], root); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(root, "usr/share/doc")); err != nil {
		return err
	}
	// mkdtemp's 0700 is for the time of fetching; guests' programs may be run by others.
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	return os.Rename(root, dir)
}

// sandbox keeps apt-get from warning that its own user may not write where root lets it.
func sandbox() []string {
	if os.Getuid() == 0 {
		return []string{"-o", "APT::Sandbox::User=root"}
	}
	return nil
}

// dependency is the first package that a package depends on.
func dependency(ctx context.Context, name string) (string, error) {
	out, err := run(ctx, "", "apt-cache", "depends", name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if dep, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && packageName.MatchString(dep) {
			return dep, nil
		}
	}
	return "", fmt.Errorf("apt-cache depends %s names no package", name)
}

// update fetches the lists of packages, which takes root.
func update(ctx context.Context) error {
	args := []string{"apt-get", "-q", "update"}
	if os.Getuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	if _, err := run(ctx, "", args[0], args[1:]...); err != nil {
		return fmt.Errorf("and fetching the lists of packages did not work (as root: apt-get update): %w", err)
	}
	return nil
}

// run runs a command and returns what it printed, which is also in the error.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(append(stdout.Bytes(), stderr.Bytes()...)))
	}
	return stdout.String(), nil
}
