// Package kernel finds the parts of a Linux kernel as Debian packages it: the image to boot, and its modules with what each needs. Guests run
// Debian's stock kernels, unpacked and not installed, so that what judges a driver is what people use.
package kernel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"bare.wire/test/guest/internal/debian"
)

// Flavour is a package of Debian that depends on the newest kernel of a kind.
type Flavour string

// The flavours in use.
const (
	// Cloud is small and boots quickest; it has virtio and VFIO, and no driver of a real card.
	Cloud Flavour = "linux-image-cloud-amd64"
	// Generic has every driver, ixgbe among them.
	Generic Flavour = "linux-image-amd64"
)

// Kernel is an unpacked kernel.
type Kernel struct {
	Release string // as `uname -r` says
	Image   string // file to boot
	modules index
}

// Get returns a kernel from the cache, and brings it there first if need be.
func Get(ctx context.Context, c *debian.Cache, f Flavour) (*Kernel, error) {
	dir, err := c.Package(ctx, string(f), true)
	if err != nil {
		return nil, err
	}
	return open(ctx, dir)
}

// open looks at a directory that a kernel's package has been unpacked into.
func open(ctx context.Context, dir string) (*Kernel, error) {
	image, err := one(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	k := &Kernel{Image: image, Release: filepath.Base(image)[len("vmlinuz-"):]}
	// Since the merge of / and /usr the same package may have its modules in either.
	for _, lib := range []string{"lib", "usr/lib"} {
		if m := filepath.Join(dir, lib, "modules", k.Release, "kernel"); exists(m) {
			k.modules, err = newIndex(m)
			if err != nil {
				return nil, err
			}
		}
	}
	if len(k.modules) == 0 {
		return nil, fmt.Errorf("the kernel in %s has no modules: remove the directory, and it is fetched again", dir)
	}
	k.Image = quicker(ctx, image, filepath.Join(dir, "vmlinux"))
	return k, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%d files match %s, and one should: remove the directory, and it is fetched again", len(found), pattern)
	}
	return found[0], nil
}
