// Guest runs a command in a virtual machine with two software 82599s, one wire between them, as the documentation's blocks for guests are run:
//
//	go run ./test/guest/cmd/guest                                     says what is there
//	go run ./test/guest/cmd/guest pktgen devices                      one command
//	go run ./test/guest/cmd/guest bash -c 'pktgen doctor; ls /dev/vfio'  several
//
// The cards are 0000:00:04.0 and 0000:00:05.0, behind an IOMMU, with the kernel's ixgbe driver on them; vfio-pci is loaded, and huge pages are set aside.
// 0000:00:06.0 and 0000:00:07.0 are QEMU's own virtio network cards, on a wire of their own, with packed rings. There are Debian's bash and busybox, and pktgen and nicsim as this tree has them. What the command prints comes out as it
// is printed; its exit status is guest's, and 125 is guest's own failure. Files that it leaves in /out appear in the directory that -out names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"bare.wire/test/guest/internal/debian"
	"bare.wire/test/guest/internal/kernel"
	"bare.wire/test/guest/internal/vm"
)

// ownFailure is the exit status when not the command but the guest failed, as of other commands that run commands.
const ownFailure = 125

func main() {
	status, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	os.Exit(status)
}

type options struct {
	cards   bool
	out     string
	timeout time.Duration
	modules string
	pages   int
	command []string
}

func run() (int, error) {
	var o options
	flag.BoolVar(&o.cards, "cards", true, "two software 82599s on a wire, at 0000:00:04.0 and 0000:00:05.0")
	flag.StringVar(&o.out, "out", "", "directory that gets what the command leaves in /out")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "time for the command, not counting the boot")
	flag.StringVar(&o.modules, "modules", "ixgbe,vfio-pci,vfio_iommu_type1,virtio_net", "kernel modules to load, with commas")
	flag.IntVar(&o.pages, "hugepages", 64, "huge pages of 2 MiB")
	flag.Parse()
	o.command = flag.Args()
	if len(o.command) == 0 {
		o.command = []string{"sh", "-c", "uname -a; pktgen devices; ls /bin | tr '\\n' ' '"}
	}
	ctx, stop := vm.Interruptible(context.Background())
	defer stop()
	tmp, err := os.MkdirTemp("", "guest-programs-")
	if err != nil {
		return ownFailure, err
	}
	defer os.RemoveAll(tmp)
	spec, err := o.spec(ctx, tmp)
	if err != nil {
		return ownFailure, err
	}
	res, err := vm.Run(ctx, spec)
	if err != nil {
		return ownFailure, err
	}
	return finish(o, res)
}

// finish makes what happened in the guest what happens here.
func finish(o options, res *vm.Result) (int, error) {
	defer os.RemoveAll(res.Dir)
	from := filepath.Join(res.Dir, "out")
	if _, err := os.Stat(from); o.out != "" && err == nil {
		if err := os.CopyFS(o.out, os.DirFS(from)); err != nil {
			return ownFailure, fmt.Errorf("what the command left: %w", err)
		}
	}
	switch {
	case res.Failure != "":
		return ownFailure, errors.New(res.Failure)
	case res.Overrun:
		return ownFailure, fmt.Errorf("the command was ended after %v (-timeout)", o.timeout)
	case res.Signal != "":
		return ownFailure, fmt.Errorf("the command was ended by signal %s", res.Signal)
	}
	return res.Status, nil
}

// spec is the machine; programs are built into tmp.
func (o options) spec(ctx context.Context, tmp string) (vm.Spec, error) {
	files, err := programs(ctx, tmp)
	if err != nil {
		return vm.Spec{}, err
	}
	// busybox goes by many names, which it makes itself.
	const install = `/bin/busybox --install -s /bin; exec "$@"`
	s := vm.Spec{
		Kernel: kernel.Generic, Modules: strings.FieldsFunc(o.modules, func(r rune) bool { return r == ',' }), HugePages: o.pages, IOMMU: true,
		Files: files, Command: append([]string{"/bin/busybox", "sh", "-c", install, "sh"}, o.command...), Dir: "/root",
		Limit: o.timeout, Output: os.Stdout, QEMU: virtioCards(),
	}
	if o.cards {
		s.ShareRAM = true
		s.Wrap = []string{filepath.Join(tmp, "nicsim"), "qemu", "--wire", "pair", "--"}
	}
	return s, nil
}

// virtioCards are two network cards of QEMU's own, on a wire.
func virtioCards() (args []string) {
	for i := range 2 {
		args = append(args, "-netdev", fmt.Sprintf("hubport,id=v%d,hubid=0", i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=v%d,addr=%d,mac=52:54:00:00:00:%02x,disable-legacy=on,iommu_platform=on,ats=on,packed=on,romfile=", i, 6+i, 6+i))
	}
	return args
}

// programs are the programs of the guest, by their paths in it.
func programs(ctx context.Context, tmp string) (map[string]string, error) {
	c, err := debian.Open()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for pkg, program := range map[string]string{"busybox-static": "busybox", "bash-static": "bash-static"} {
		dir, err := c.Package(ctx, pkg, false)
		if err != nil {
			return nil, err
		}
		files["/bin/"+strings.TrimSuffix(program, "-static")] = filepath.Join(dir, "bin", program)
	}
	for _, name := range []string{"pktgen", "nicsim"} {
		file := filepath.Join(tmp, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", file, "bare.wire/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its directory then
		cmd.WaitDelay = 5 * time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
		files["/bin/"+name] = file
	}
	// Everybody in the guest is root; what is written for others works all the same.
	sudo := filepath.Join(tmp, "sudo")
	if err := os.WriteFile(sudo, []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755); err != nil {
		return nil, err
	}
	files["/bin/sudo"] = sudo
	return files, nil
}
