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

// Fetch unpacks Debian packages, or knows where they lie unpacked, and returns their directories in the same order.
type Fetch func(ctx context.Context, names ...string) (dirs []string, err error)

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
	known map[string]bool   // libraries that have been found, or are being looked for
}

// Files returns everything that the items need to run: the path in the guest of each file, and where it lies here. Programs
// keep their paths; libraries all go to one directory, where the loader looks for them.
func Files(ctx context.Context, fetch Fetch, items ...Item) (map[string]string, error) {
	r := root{fetch: fetch, files: make(map[string]string), known: make(map[string]bool)}
	var names []string
	for _, it := range items {
		names = append(names, it.Package)
	}
	dirs, err := fetch(ctx, names...)
	if err != nil {
		return nil, err
	}
	var todo []string // ELF files whose libraries are to be found
	for i, it := range items {
		file, err := filepath.EvalSymlinks(filepath.Join(dirs[i], it.File))
		if err != nil {
			return nil, fmt.Errorf("the Debian package %s has no %s: %w", it.Package, it.File, err)
		}
		r.files[path.Join("/", it.File)] = file
		todo = append(todo, file)
	}
	for len(todo) > 0 { // a wave at a time, so that packages are fetched many at once
		wanted, err := r.needs(todo)
		if err != nil {
			return nil, err
		}
		if todo, err = r.locate(ctx, wanted); err != nil {
			return nil, err
		}
	}
	return r.files, nil
}

// want is a library that is looked for.
type want struct{ name, pkg, by string }

// needs are the libraries that files ask for and that have not been looked for yet.
func (r *root) needs(files []string) (wanted []want, err error) {
	for _, file := range files {
		names, err := imported(file)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if r.known[name] {
				continue
			}
			r.known[name] = true
			pkg, err := Package(name)
			if err != nil {
				return nil, fmt.Errorf("%s needs it: %w", filepath.Base(file), err)
			}
			wanted = append(wanted, want{name, pkg, filepath.Base(file)})
		}
	}
	return wanted, nil
}

// imported are the names of the libraries of an ELF file, and of its loader if it has one.
func imported(file string) ([]string, error) {
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
	return names, nil
}

// locate fetches the packages of libraries, adds their files and returns them.
func (r *root) locate(ctx context.Context, wanted []want) (files []string, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	var names []string
	for _, w := range wanted {
		names = append(names, w.pkg)
	}
	dirs, err := r.fetch(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("libraries of %s: %w", wanted[0].by, err)
	}
	for i, w := range wanted {
		file, err := find(dirs[i], w.name)
		if err != nil {
			return nil, fmt.Errorf("%s, which %s needs: the Debian package %s: %w", w.name, w.by, w.pkg, err)
		}
		to := libraryDir
		if w.name == interpreter {
			to = loaderDir
		}
		r.files[path.Join(to, w.name)] = file
		files = append(files, file)
	}
	return files, nil
}

// find finds a library in an unpacked package.
func find(dir, name string) (string, error) {
	for _, sub := range searched {
		file, err := filepath.EvalSymlinks(filepath.Join(dir, sub, name))
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", errors.New("it is not in there: name the one that has it in the exceptions")
}
