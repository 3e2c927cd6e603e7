package kernel

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Module is a module of a kernel.
type Module struct {
	Name  string   // as the kernel spells it, with underscores
	Needs []string // names of all that must be loaded before it, in order

	file string
}

// Bytes is the module as the kernel takes it. Modules that are compressed take the command xz.
func (m Module) Bytes() ([]byte, error) { return read(m.file) }

// index is the modules of a kernel by name.
type index map[string]string

// newIndex finds the modules below a directory.
func newIndex(dir string) (index, error) {
	x := index{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(p, ".ko") || strings.HasSuffix(p, ".ko.xz")) {
			x[canonical(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(p), ".xz"), ".ko"))] = p
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for modules: %w", err)
	}
	return x, nil
}

// canonical is a module's name as the kernel spells it: files use hyphens and underscores as they like.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Resolve returns the named modules and everything they need, each after what it needs.
func (k *Kernel) Resolve(names ...string) ([]Module, error) {
	r := resolver{index: k.modules, done: map[string][]string{}}
	for _, n := range names {
		if err := r.add(canonical(n), nil); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Release, err)
		}
	}
	return r.order, nil
}

type resolver struct {
	index index
	order []Module
	done  map[string][]string // name → what it needs
}

// add puts a module and what it needs into the order; above are those that led to it.
func (r *resolver) add(name string, above []string) error {
	if _, ok := r.done[name]; ok {
		return nil
	}
	if slices.Contains(above, name) {
		return fmt.Errorf("module %s needs itself, through %s", name, strings.Join(above, ", "))
	}
	file, ok := r.index[name]
	if !ok {
		return fmt.Errorf("there is no module %s (it may be built in, or belong to another flavour of kernel)", name)
	}
	info, err := modinfo(file)
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	above = append(slices.Clone(above), name)
	var needs []string
	for _, n := range r.wanted(info) {
		if err := r.add(n, above); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, d := range append(slices.Clone(r.done[n]), n) {
			if !slices.Contains(needs, d) {
				needs = append(needs, d)
			}
		}
	}
	r.done[name] = needs
	r.order = append(r.order, Module{Name: name, Needs: needs, file: file})
	return nil
}

// wanted is what a module's own description asks for: dependencies, and those of its soft ones that are to be there first, exist and are
// named before the word "post:".
func (r *resolver) wanted(info map[string][]string) (names []string) {
	for _, list := range info["softdep"] {
		pre, _, _ := strings.Cut(list, "post:")
		for _, n := range strings.Fields(strings.TrimPrefix(strings.TrimSpace(pre), "pre:")) {
			if _, ok := r.index[canonical(n)]; ok {
				names = append(names, canonical(n))
			}
		}
	}
	for _, list := range info["depends"] {
		for n := range strings.SplitSeq(list, ",") {
			if n != "" {
				names = append(names, canonical(n))
			}
		}
	}
	return names
}

// modinfo is the section .modinfo of a module: key=value, each with a NUL at its end.
func modinfo(file string) (map[string][]string, error) {
	b, err := read(file)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("%s has no section .modinfo", file)
	}
	data, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	info := map[string][]string{}
	for line := range bytes.SplitSeq(data, []byte{0}) {
		if k, v, ok := strings.Cut(string(line), "="); ok {
			info[k] = append(info[k], v)
		}
	}
	return info, nil
}

func read(file string) ([]byte, error) {
	if !strings.HasSuffix(file, ".xz") {
		return os.ReadFile(file)
	}
	out, err := exec.Command("xz", "-dc", file).Output()
	if err != nil {
		return nil, fmt.Errorf("xz -dc %s (Debian's package xz-utils): %w", file, err)
	}
	return out, nil
}
