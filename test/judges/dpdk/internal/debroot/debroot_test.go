package debroot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPackagesAreNamedByPolicy(t *testing.T) {
	for soname, want := range map[string]string{
		"librte_ethdev.so.23":   "librte-ethdev23",
		"librte_net_mlx5.so.23": "librte-net-mlx5-23",
		"libpcap.so.0.8":        "libpcap0.8",
		"libdbus-1.so.3":        "libdbus-1-3",
		"libnl-route-3.so.200":  "libnl-route-3-200",
		"libnuma.so.1":          "libnuma1",
		"libm.so.6":             "libc6",
		"ld-linux-x86-64.so.2":  "libc6",
		"libmlx5.so.1":          "ibverbs-providers",
		"libz.so.1":             "zlib1g",
	} {
		got, err := Package(soname)
		require.NoError(t, err)
		assert.Equal(t, want, got, soname)
	}
	for _, bad := range []string{"", "libfoo.so", "../libfoo.so.1", "libfoo.so.1/..", ".so.1"} {
		_, err := Package(bad)
		assert.Error(t, err, bad)
	}
}

// tree fetches packages out of a directory, and nothing else.
func tree(t *testing.T, fetched *[][]string) (string, Fetch) {
	dir := t.TempDir()
	return dir, func(_ context.Context, names ...string) (dirs []string, err error) {
		*fetched = append(*fetched, names)
		for _, n := range names {
			p := filepath.Join(dir, n)
			if _, err := os.Stat(p); err != nil {
				return nil, errors.New("no package " + n)
			}
			dirs = append(dirs, p)
		}
		return dirs, nil
	}
}

// put writes the ELF file of the name out of testdata into a package.
func put(t *testing.T, dir, name, as string) {
	t.Helper()
	b := elfFile(t, name)
	to := filepath.Join(dir, as)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(to, b, 0o755))
}

func TestLibrariesAreFollowedThroughPackages(t *testing.T) {
	var fetched [][]string
	dir, fetch := tree(t, &fetched)
	put(t, dir, "prog: liba_b.so.1", "tool/usr/bin/prog")
	put(t, dir, "lib: libm.so.6", "liba-b1/usr/lib/x86_64-linux-gnu/liba_b.so.1.0.3")
	require.NoError(t, os.Symlink("liba_b.so.1.0.3", filepath.Join(dir, "liba-b1/usr/lib/x86_64-linux-gnu/liba_b.so.1")))
	put(t, dir, "lib:", "libc6/lib/x86_64-linux-gnu/libm.so.6")
	put(t, dir, "lib:", "libc6/lib64/ld-linux-x86-64.so.2")

	files, err := Files(t.Context(), fetch, Item{"tool", "usr/bin/prog"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"/usr/bin/prog":                         filepath.Join(dir, "tool/usr/bin/prog"),
		"/usr/lib/x86_64-linux-gnu/liba_b.so.1": filepath.Join(dir, "liba-b1/usr/lib/x86_64-linux-gnu/liba_b.so.1.0.3"),
		"/usr/lib/x86_64-linux-gnu/libm.so.6":   filepath.Join(dir, "libc6/lib/x86_64-linux-gnu/libm.so.6"),
		"/lib64/ld-linux-x86-64.so.2":           filepath.Join(dir, "libc6/lib64/ld-linux-x86-64.so.2"),
	}, files)
	assert.Equal(t, [][]string{{"tool"}, {"liba-b1", "libc6"}, {"libc6"}}, fetched)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	var fetched [][]string
	dir, fetch := tree(t, &fetched)
	_, err := Files(t.Context(), fetch, Item{"tool", "usr/bin/prog"})
	assert.ErrorContains(t, err, "no package tool")

	put(t, dir, "lib: liba_b.so.1", "tool/usr/bin/prog")
	_, err = Files(t.Context(), fetch, Item{"tool", "usr/bin/other"})
	assert.ErrorContains(t, err, "package tool has no usr/bin/other")
	_, err = Files(t.Context(), fetch, Item{"tool", "usr/bin/prog"})
	assert.ErrorContains(t, err, "libraries of prog: no package liba-b1")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "liba-b1"), 0o755))
	_, err = Files(t.Context(), fetch, Item{"tool", "usr/bin/prog"})
	assert.ErrorContains(t, err, "package liba-b1: it is not in there")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "tool/usr/bin/prog"), []byte("#!/bin/sh"), 0o755))
	_, err = Files(t.Context(), fetch, Item{"tool", "usr/bin/prog"})
	assert.ErrorContains(t, err, "usr/bin/prog")
}
