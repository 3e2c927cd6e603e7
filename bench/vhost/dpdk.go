package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sources are compiled where the program runs, so that it can run anywhere.
//
//go:embed dpdk
var sources embed.FS

// install says what is needed and where it is from.
const install = "on Debian: apt-get install gcc pkg-config libdpdk-dev (22.11)"

// compile makes the programs of dpdk/ in dir.
func compile(ctx context.Context, dir string) error {
	for _, tool := range []string{"gcc", "pkg-config"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("there is no %s to compile DPDK's side with: %s", tool, install)
		}
	}
	flags, err := exec.CommandContext(ctx, "pkg-config", "--cflags", "--libs", "libdpdk").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%s", strings.TrimSpace(string(exit.Stderr)))
		}
		return fmt.Errorf("DPDK's headers are missing: %s: %w", install, err)
	}
	files, err := sources.ReadDir("dpdk")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := sources.ReadFile("dpdk/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), text, 0o666); err != nil {
			return err
		}
	}
	for _, program := range []string{"backend", "frontend"} {
		args := append([]string{"-O3", "-o", program, program + ".c"}, strings.Fields(string(flags))...)
		// pkg-config names the libraries of programs that bring their own ports.
		cmd := exec.CommandContext(ctx, "gcc", append(args, "-lrte_net_vhost", "-lrte_net_virtio")...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("compiling %s.c: %w\n%s", program, err, out)
		}
	}
	return nil
}
