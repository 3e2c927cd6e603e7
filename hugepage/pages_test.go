package hugepage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPagesAreCountedForTheMachineAndEachNode(t *testing.T) {
	h := machine{nodes: "0-1", free: map[[2]int][2]int{
		{AnyNode, Page1G}: {1, 0}, {AnyNode, Page2M}: {30, 20},
		{0, Page2M}: {10, 5}, {1, Page2M}: {20, 15},
	}}.host(t)
	got, err := pagesAt(h.sys)
	require.NoError(t, err)
	assert.Equal(t, []PageCount{
		{PageSize: Page2M, Node: AnyNode, Total: 30, Free: 20, Reserved: 1},
		{PageSize: Page1G, Node: AnyNode, Total: 1, Free: 0, Reserved: 1},
		{PageSize: Page2M, Node: 0, Total: 10, Free: 5},
		{PageSize: Page2M, Node: 1, Total: 20, Free: 15},
	}, got)
	assert.Equal(t, 19, got[0].available())
	assert.Equal(t, 0, got[1].available(), "more promised than free")
}

func TestKernelWithoutHugePagesOrNUMA(t *testing.T) {
	got, err := pagesAt(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, got)
	nodes, err := onlineNodes(t.TempDir())
	require.NoError(t, err)
	assert.Equal(t, []int{0}, nodes)
}

func TestStrangeFilesInSysfs(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "kernel/mm/hugepages")
	for _, name := range []string{"hugepages-2048kB", "hugepages-3000kB", "hugepages--2kB", "hugepages-kB", "other-64kB",
		"hugepages-64MB", "hugepages-99999999999999999999kB", "hugepages-4611686018427387904kB"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o777))
	}
	sizes, err := pageSizes(sys)
	require.NoError(t, err)
	assert.Equal(t, []int{Page2M}, sizes)

	for _, text := range []string{"", "-1", "many", "99999999999999999999"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "hugepages-2048kB/nr_hugepages"), []byte(text), 0o666))
		_, err = pagesAt(sys)
		require.ErrorContains(t, err, "not a number", "%q", text)
	}
}

func TestMeminfo(t *testing.T) {
	proc := t.TempDir()
	for text, want := range map[string]int{
		"MemTotal: 5 kB\nMemAvailable:   12 kB\n": 12 << 10,
		"MemTotal: 5 kB\n":                        -1,
		"MemAvailable: -1 kB\n":                   -1,
		"MemAvailable: 99999999999999999 kB\n":    -1,
		"":                                        -1,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(proc, "meminfo"), []byte(text), 0o666))
		got, err := memoryFigure(proc, "MemAvailable")
		if want < 0 {
			assert.Error(t, err, "%q", text)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestSizesAreWrittenInTheLargestExactUnit(t *testing.T) {
	for n, want := range map[int]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 4096: "4 KiB", 3 << 20: "3 MiB", 1<<20 + 1: "1048577 B", 1 << 30: "1 GiB", 5 << 40: "5 TiB",
	} {
		assert.Equal(t, want, sizeText(n))
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"0", "0-1,3", "", "-", "3-1", "0-99999999", "1,,2", "0-4095,0-4095,0-4095"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseList(text)
		if err != nil {
			return
		}
		if len(list) == 0 || len(list) > 3*maxNode {
			t.Fatalf("%q gives %d numbers", text, len(list))
		}
		for _, n := range list {
			if n < 0 || n >= maxNode {
				t.Fatalf("%q gives %d", text, n)
			}
		}
	})
}

func TestNodeLists(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-1": {0, 1}, "0-1,3": {0, 1, 3}, "5,7-8": {5, 7, 8}} {
		got, err := parseList(text)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "a", "1-", "-1", "2-1", "0,", "0-4096"} {
		_, err := parseList(text)
		assert.Error(t, err, "%q", text)
	}
}
