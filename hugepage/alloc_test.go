package hugepage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// machine describes a host in files: free huge pages by node and size.
type machine struct {
	nodes     string            // content of node/online; "": a kernel without NUMA
	free      map[[2]int][2]int // {node, page size}: {total, free}
	available int               // MemAvailable and MemTotal in bytes; 0: no meminfo
}

func (m machine) host(t *testing.T) host {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	if m.nodes != "" {
		write("sys/devices/system/node/online", m.nodes+"\n")
	}
	for key, n := range m.free {
		dir := strings.TrimPrefix(countersDir("/sys", key[1], key[0]), "/")
		write(dir+"/nr_hugepages", fmt.Sprintln(n[0]))
		write(dir+"/free_hugepages", fmt.Sprintln(n[1]))
		write(dir+"/surplus_hugepages", "0\n")
		if key[0] == AnyNode {
			write(dir+"/resv_hugepages", "1\n")
		}
	}
	if m.available > 0 {
		write("proc/meminfo", fmt.Sprintf("MemTotal:  %d kB\nMemFree: 1 kB\nMemAvailable:  %d kB\n", 2*m.available>>10, m.available>>10))
	}
	h := linuxHost()
	h.sys, h.proc = root+"/sys", root+"/proc"
	// Huge memfds are ordinary ones here, so that every path runs everywhere.
	h.memfd = func(name string, flags int) (int, error) {
		const huge = unix.MFD_HUGETLB | unix.MFD_HUGE_MASK<<unix.MFD_HUGE_SHIFT
		return unix.MemfdCreate(name, flags&^huge)
	}
	return h
}

func noHugeMemfd(name string, flags int) (int, error) {
	if flags&unix.MFD_HUGETLB != 0 {
		return -1, unix.ENODEV
	}
	return unix.MemfdCreate(name, flags)
}

func TestConfigThatNoMachineCanServe(t *testing.T) {
	h := machine{nodes: "0-1", available: 1 << 30, free: map[[2]int][2]int{{AnyNode, Page2M}: {4, 4}}}.host(t)
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"size 0", Config{}, "at least 1 byte"},
		{"negative size", Config{Size: -5}, "size -5"},
		{"absurd size", Config{Size: maxSize + 1}, "surely a mistake"},
		{"largest int", Config{Size: int(^uint(0) >> 1)}, "surely a mistake"},
		{"more than the machine has", Config{Size: 3 << 30}, "the machine has only 2 GiB"},
		{"more than is available", Config{Size: 3 << 29, PageSize: h.basePage}, "only 1 GiB available"},
		{"no such node", Config{Size: 1, Node: 2}, "NUMA node 2 does not exist or is offline; online: [0 1]"},
		{"negative node", Config{Size: 1, Node: -2}, "NUMA node -2"},
		{"odd page size", Config{Size: 1, PageSize: 5000}, "page size 5000: the kernel has"},
		{"negative page size", Config{Size: 1, PageSize: -4096}, "page size -4096"},
		{"page size the kernel has not got", Config{Size: 1, PageSize: Page1G}, "the kernel has 4 KiB, 2 MiB"},
		{"ordinary pages that shall be huge", Config{Size: 1, PageSize: h.basePage, RequireHuge: true}, "is the ordinary one"},
		{"NUL in the name", Config{Size: 1, Name: "a\x00b"}, "NUL"},
		{"long name", Config{Size: 1, Name: strings.Repeat("n", maxName+1)}, "at most 249"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := alloc(c.cfg, h)
			require.Error(t, err)
			assert.Contains(t, strings.ReplaceAll(err.Error(), sizeText(h.basePage), "4 KiB"), c.want)
		})
	}
}

func TestLongestNameWorks(t *testing.T) {
	cfg := ordinary(1)
	cfg.Name = strings.Repeat("n", maxName)
	mustAlloc(t, cfg)
}

func TestPageSizesAreTriedBestFirst(t *testing.T) {
	base := os.Getpagesize()
	h := host{basePage: base}
	for _, c := range []struct {
		cfg  Config
		want []int
	}{
		{Config{Size: 1}, []int{Page2M, base}},
		{Config{Size: Page1G - 1}, []int{Page1G, Page2M, base}},
		{Config{Size: Page1G}, []int{Page1G, Page2M, base}},
		{Config{Size: Page1G + 1}, []int{Page2M, base}},
		{Config{Size: 10*Page1G + 1}, []int{Page1G, Page2M, base}},
		{Config{Size: 1, RequireHuge: true}, []int{Page2M}},
		{Config{Size: 1, PageSize: Page1G}, []int{Page1G}},
		{Config{Size: 1, PageSize: base}, []int{base}},
	} {
		assert.Equal(t, c.want, h.candidates(c.cfg), "%+v", c.cfg)
	}
}

func TestHugePageFlagsNameTheSize(t *testing.T) {
	h := machine{}.host(t)
	for page, want := range map[int]int{
		h.basePage: 0,
		Page2M:     unix.MFD_HUGETLB | unix.MFD_HUGE_2MB,
		Page1G:     unix.MFD_HUGETLB | unix.MFD_HUGE_1GB,
	} {
		var got int
		h.memfd = func(_ string, flags int) (int, error) { got = flags; return -1, unix.ENOSYS }
		_, err := h.openMemfd("x", page, page)
		require.ErrorIs(t, err, unix.ENOSYS)
		assert.Equal(t, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|want, got)
	}
}

func TestWithoutHugePagesOrdinaryOnesAreTaken(t *testing.T) {
	h := machine{nodes: "0"}.host(t)
	h.memfd = noHugeMemfd
	r, err := alloc(Config{Size: 10}, h)
	require.NoError(t, err)
	defer r.Close()
	assert.False(t, r.Huge())
	assert.Equal(t, h.basePage, r.Size())
	assert.ErrorIs(t, r.Fallback(), ErrNoHugePages, "says why")
	assert.ErrorIs(t, r.Fallback(), unix.ENODEV)

	_, err = alloc(Config{Size: 10, RequireHuge: true}, h)
	assert.ErrorIs(t, err, ErrNoHugePages)
}

func TestShortageNamesTheCommand(t *testing.T) {
	enomem := func([]byte) error { return unix.ENOMEM }
	for _, c := range []struct {
		name string
		m    machine
		cfg  Config
		want string
	}{
		{"one node", machine{nodes: "0", free: map[[2]int][2]int{{AnyNode, Page2M}: {5, 3}}},
			Config{Size: 4 * Page2M},
			"4 of 2 MiB needed, 2 free (cannot allocate memory); to provide them: sysctl -w vm.nr_hugepages=7"},
		{"a node of two", machine{nodes: "0-1", free: map[[2]int][2]int{{AnyNode, Page2M}: {5, 3}, {1, Page2M}: {2, 1}}},
			Config{Size: 4 * Page2M, Node: 1},
			"4 of 2 MiB needed on NUMA node 1, 1 free (cannot allocate memory); to provide them: echo 5 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"},
		{"other size", machine{nodes: "0", free: map[[2]int][2]int{{AnyNode, 1 << 25}: {0, 0}}},
			Config{Size: 2 << 25, PageSize: 1 << 25, Node: AnyNode},
			"to provide them: echo 2 > /sys/kernel/mm/hugepages/hugepages-32768kB/nr_hugepages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := c.m.host(t)
			h.populate, h.mbind = enomem, func([]byte, int) error { return nil }
			c.cfg.RequireHuge, c.cfg.Name = true, "short-test"
			_, err := alloc(c.cfg, h)
			require.ErrorIs(t, err, ErrNoHugePages)
			require.ErrorIs(t, err, unix.ENOMEM)
			assert.Contains(t, err.Error(), c.want)
			assert.Zero(t, mapsOf(t, "short-test"), "nothing stays mapped")
			assert.Zero(t, openMemfds(t, "short-test"), "nothing stays open")
		})
	}
}

func TestOrdinaryMemoryRunsOut(t *testing.T) {
	h := machine{nodes: "0"}.host(t)
	h.populate = func([]byte) error { return unix.EFAULT }
	cfg := ordinary(1 << 20)
	cfg.Name = "oom-test"
	_, err := alloc(cfg, h)
	require.ErrorIs(t, err, unix.EFAULT)
	assert.NotErrorIs(t, err, ErrNoHugePages)
	assert.Zero(t, mapsOf(t, "oom-test"))
	assert.Zero(t, openMemfds(t, "oom-test"))
}

func TestKernelWithoutPopulateTouchesPages(t *testing.T) {
	enough := machine{nodes: "0", free: map[[2]int][2]int{{AnyNode, Page2M}: {2, 2}}}
	short := machine{nodes: "0", free: map[[2]int][2]int{{AnyNode, Page2M}: {2, 1}}}
	einval := func([]byte) error { return unix.EINVAL }

	h := enough.host(t)
	h.populate = einval
	r, err := alloc(Config{Size: 2 * Page2M, RequireHuge: true}, h)
	require.NoError(t, err)
	defer r.Close()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(r.FD(), &st))
	assert.NotZero(t, st.Blocks, "touched")

	h = short.host(t)
	h.populate = einval
	_, err = alloc(Config{Size: 2 * Page2M, RequireHuge: true}, h)
	assert.ErrorIs(t, err, ErrNoHugePages, "refused before a page is touched")
}

func TestTouchingMemoryThatIsNotThereIsAnError(t *testing.T) {
	fd, err := unix.MemfdCreate("touch-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	page := os.Getpagesize()
	require.NoError(t, unix.Ftruncate(fd, int64(page)))
	b, err := unix.Mmap(fd, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(b)
	assert.NoError(t, touch(b[:page], page))
	assert.ErrorIs(t, touch(b, page), unix.ENOMEM, "the second page is a SIGBUS")
}

func TestMemoryIsBoundToTheNodeAskedFor(t *testing.T) {
	two := machine{nodes: "0,3"}.host(t)
	two.memfd = noHugeMemfd
	var nodes []int
	two.mbind = func(b []byte, node int) error { nodes = append(nodes, node); return nil }
	for _, node := range []int{3, 0, AnyNode} {
		r, err := alloc(Config{Size: 1, Node: node}, two)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
	assert.Equal(t, []int{3, 0}, nodes)

	two.mbind = func([]byte, int) error { return unix.EPERM }
	_, err := alloc(Config{Size: 1, Node: 3}, two)
	require.ErrorIs(t, err, unix.EPERM)
	assert.ErrorContains(t, err, "NUMA node 3")

	one := machine{nodes: "0"}.host(t)
	one.memfd, one.mbind = noHugeMemfd, two.mbind
	r, err := alloc(Config{Size: 1, Node: 0}, one)
	require.NoError(t, err, "one node: nothing to decide, and containers forbid mbind")
	require.NoError(t, r.Close())
}

func TestKernelTakesTheNodeMask(t *testing.T) {
	r := mustAlloc(t, ordinary(1<<20))
	err := mbind(r.Bytes(), 0)
	if err != unix.EPERM && err != unix.ENOSYS { // a container, a kernel without NUMA
		require.NoError(t, err)
	}
	if err == nil {
		assert.ErrorIs(t, mbind(r.Bytes(), 1000), unix.EINVAL, "no such node")
		var mode int32
		mask := make([]uint64, 64)
		const flagAddr = 2 // MPOL_F_ADDR: the policy of an address
		_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)),
			uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*64), uintptr(r.Base()), flagAddr, 0)
		require.Zero(t, errno)
		assert.Equal(t, int32(unix.MPOL_BIND), mode)
		assert.Equal(t, uint64(1), mask[0])
	}
}
