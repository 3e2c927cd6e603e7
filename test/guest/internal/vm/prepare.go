package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"bare.wire/test/guest/internal/cpio"
	"bare.wire/test/guest/internal/proto"
)

const (
	outputs   = "/out"
	moduleDir = "/lib/modules"
	initPkg   = "bare.wire/test/guest/internal/init"
)

// own are the modules that the connection to the host needs.
var own = []string{"virtio_pci", "virtio_console"}

// prepare makes the guest's first file system.
func (r *run) prepare(ctx context.Context) error {
	init, err := r.buildInit(ctx)
	if err != nil {
		return err
	}
	f, err := os.Create(r.path("initrd"))
	if err != nil {
		return fmt.Errorf("the guest's file system: %w", err)
	}
	w := cpio.NewWriter(f)
	err = r.fill(w, init)
	err = errors.Join(err, w.Close(), f.Close())
	if err != nil {
		return err
	}
	r.initrd = w.Size()
	return os.WriteFile(r.path("initrd.txt"), []byte(strings.Join(w.Names(), "\n")+"\n"), 0o666)
}

// buildInit builds init into the cache. The go command leaves it alone when it is up to date.
func (r *run) buildInit(ctx context.Context) (string, error) {
	name := filepath.Join(r.cache.Dir, "init")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", name, initPkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its directory then
	cmd.WaitDelay = killTime
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the guest's init: %w\n%s", err, out)
	}
	return name, nil
}

// fill writes what the guest's file system holds.
func (r *run) fill(w *cpio.Writer, init string) error {
	w.CharDevice("/dev/console", 0o600, 5, 1)
	w.Bytes("/etc/passwd", 0o644, []byte("root:x:0:0:root:/tmp:/bin/sh\n"))
	w.Bytes("/etc/group", 0o644, []byte("root:x:0:\n"))
	w.Bytes("/etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	w.Dir(r.spec.Dir)
	if err := w.Tree("/init", init); err != nil {
		return err
	}
	modules, err := r.modules(w)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.spec.Files)) {
		if err := w.Tree(name, r.spec.Files[name]); err != nil {
			return err
		}
	}
	work, err := json.MarshalIndent(proto.Work{
		Modules: modules, Load: r.spec.Modules, HugePages: r.spec.HugePages, Command: r.spec.Command, Env: r.spec.Env, Dir: r.spec.Dir,
		Limit: r.spec.Limit, Outputs: outputs,
	}, "", "  ")
	if err != nil {
		return err
	}
	w.Bytes(proto.WorkFile, 0o644, work)
	return nil
}

// modules writes the modules that the guest is to have, and returns their list.
func (r *run) modules(w *cpio.Writer) (list []proto.Module, err error) {
	names := slices.Clone(own)
	for _, m := range slices.Concat(r.spec.Modules, r.spec.ModuleFiles) {
		name, _, _ := strings.Cut(m, " ")
		names = append(names, name)
	}
	all, err := r.kernel.Resolve(names...)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		b, err := m.Bytes()
		if err != nil {
			return nil, err
		}
		file := moduleDir + "/" + m.Name + ".ko"
		w.Bytes(file, 0o644, b)
		list = append(list, proto.Module{Name: m.Name, File: file, Needs: m.Needs})
	}
	return list, nil
}
