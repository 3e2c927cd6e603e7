package debian

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Packages is Package for several, whose directories it returns in the same order. Those that are missing are asked for together, since
// apt-get takes its time to start.
func (c *Cache) Packages(ctx context.Context, names ...string) (dirs []string, err error) {
	// Whatever goes wrong here, Package tries again, one by one, and says it.
	_ = c.fetchTogether(ctx, names)
	dirs = make([]string, len(names))
	for i, n := range names {
		if dirs[i], err = c.Package(ctx, n, false); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// fetchTogether fetches what is missing, if that is more than one package.
func (c *Cache) fetchTogether(ctx context.Context, names []string) error {
	if len(c.missing(names)) < 2 {
		return nil
	}
	unlock, err := c.Lock(ctx, "deb-many")
	if err != nil {
		return err
	}
	defer unlock()
	names = c.missing(names) // somebody else may have been quicker
	if len(names) < 2 {
		return nil
	}
	tmp, err := os.MkdirTemp(c.Dir, "fetching-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if _, err := run(ctx, tmp, "apt-get", append(append(sandbox(), "-q", "download"), names...)...); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, "deb"), 0o755); err != nil {
		return err
	}
	for _, n := range names {
		err = errors.Join(err, c.place(ctx, tmp, n))
	}
	return err
}

// missing are the names of packages that are not in the cache.
func (c *Cache) missing(names []string) (all []string) {
	for _, n := range names {
		if packageName.MatchString(n) && !isDir(filepath.Join(c.Dir, "deb", n)) {
			all = append(all, n)
		}
	}
	return all
}

// place unpacks a package that lies in tmp and moves it to its place.
func (c *Cache) place(ctx context.Context, tmp, name string) error {
	debs, err := filepath.Glob(filepath.Join(tmp, name+"_*.deb"))
	if err != nil || len(debs) != 1 {
		return errors.Join(err, errors.New("apt-get left no "+name))
	}
	root := filepath.Join(tmp, "root-"+name)
	if _, err := run(ctx, tmp, "dpkg-deb", "-x", debs[0], root); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(root, "usr/share/doc")), os.Chmod(root, 0o755)); err != nil {
		return err
	}
	dir := filepath.Join(c.Dir, "deb", name)
	if err := os.Rename(root, dir); err != nil && !isDir(dir) { // a single fetch of it may have come in between
		return err
	}
	return nil
}
