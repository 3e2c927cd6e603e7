// Package debroot finds the files that programs of a Debian system need to run, without installing anything: it follows the
// names of shared libraries that an ELF file asks for (DT_NEEDED) from package to package, and fetches what is missing. A
// program arrives in a guest with its libraries, and with nothing else of its dependencies.
//
// The package of a library follows from its name by Debian's policy (§8.1: libfoo.so.1 is in libfoo1, libfoo2.so.3 in
// libfoo2-3); the few that are named otherwise are in the table exceptions.
package debroot

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Fetch unpacks a Debian package, or knows where it lies unpacked, and returns the directory.
type Fetch func(ctx context.Context, name string) (dir string, err error)

// Item is a file of a package that is wanted, by its path below the root, such as usr/bin/dpdk-testpmd.
type Item struct{ Package, File string }

// Where files go. The interpreter's place is written in every program; libraries go where Debian's looks for them.
const (
	interpreter = "ld-linux-x86-64.so.2"
	loaderDir   = "/lib64"
	libraryDir  = "/usr/lib/x86_64-linux-gnu"
)

// searched are the directories of a package in which libraries lie.
var searched = []string{"usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64"}

// exceptions are the packages of libraries that are not named after them.
var exceptions = map[string]string{
	interpreter:       "libc6",
	"libc.so.6":       "libc6",
	"libm.so.6":       "libc6",
	"libdl.so.2":      "libc6",
	"librt.so.1":      "libc6",
	"libpthread.so.0": "libc6",
	"libmlx4.so.1":    "ibverbs-providers",
	"libmlx5.so.1":    "ibverbs-providers",
	"libcrypto.so.3":  "libssl3",
	"libz.so.1":       "zlib1g",
}

// library is the form of a library's name.
var library = regexp.MustCompile(`^([A-Za-z0-9_.+-]+)\.so\.([0-9.]+)$`)

// Package is the Debian package that brings a library, by its name in DT_NEEDED.
func Package(soname string) (string, error) {
	if p, ok := exceptions[soname]; ok {
		return p, nil
	}
	m := library.FindStringSubmatch(soname)
	if m == nil {
		return "", fmt.Errorf("the name of the library %q does not say which Debian package brings it: add it to the exceptions", soname)
	}
	base := strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))
	if last := base[len(base)-1]; last >= '0' && last <= '9' {
		base += "-"
	}
	return base + m[2], nil
}

// root is the work of one Files.
type root struct {
	fetch Fetch
	files map[string]string // path in the guest to file here
	known map[string]bool   // libraries that have been found
}

// Files returns everything that the items need to run: the path in the guest of each file, and where it lies here. Programs
// keep their paths; libraries all go to one directory, where the loader looks for them.
func Files(ctx context.Context, fetch Fetch, items ...Item) (map[string]string, error) {
	r := root{fetch: fetch, files: make(map[string]string), known: make(map[string]bool)}
	var todo []string // ELF files whose libraries are to be found
	for _, it := range items {
		dir, err := fetch(ctx, it.Package)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", it.File, err)
		}
		file, err := filepath.EvalSymlinks(filepath.Join(dir, it.File))
		if err != nil {
			return nil, fmt.Errorf("the Debian package %s has no %s: %w", it.Package, it.File, err)
		}
		r.files[path.Join("/", it.File)] = file
		todo = append(todo, file)
	}
	for len(todo) > 0 {
		file := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		found, err := r.needs(ctx, file)
		if err != nil {
			return nil, err
		}
		todo = append(todo, found...)
	}
	return r.files, nil
}

// needs adds the libraries that a file asks for, and returns those that are new.
func (r *root) needs(ctx context.Context, file string) (found []string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("the libraries that %s needs: %w", file, err)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		names = append(names, interpreter)
	}
	for _, name := range names {
		if r.known[name] {
			continue
		}
		r.known[name] = true
		lib, err := r.locate(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s, which %s needs: %w", name, filepath.Base(file), err)
		}
		to := libraryDir
		if name == interpreter {
			to = loaderDir
		}
		r.files[path.Join(to, name)] = lib
		found = append(found, lib)
	}
	return found, nil
}

// locate fetches the package of a library and finds the file in it.
func (r *root) locate(ctx context.Context, name string) (string, error) {
	pkg, err := Package(name)
	if err != nil {
		return "", err
	}
	dir, err := r.fetch(ctx, pkg)
	if err != nil {
		return "", err
	}
	for _, sub := range searched {
		file, err := filepath.EvalSymlinks(filepath.Join(dir, sub, name))
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("the Debian package %s does not have it: name the one that has in the exceptions", pkg)
}
