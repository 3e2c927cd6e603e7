package hugepage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ordinary is what every machine can give, whoever asks.
func ordinary(size int) Config {
	return Config{Size: size, PageSize: os.Getpagesize(), Node: AnyNode, Name: "hugepage-test"}
}

func mustAlloc(t *testing.T, cfg Config) *Region {
	t.Helper()
	r, err := Alloc(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

// mapsOf counts this process's mappings of memfds with a name.
func mapsOf(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(text), "memfd:"+name)
}

// openMemfds counts this process's descriptors of memfds with a name.
func openMemfds(t *testing.T, name string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if strings.Contains(target, "memfd:"+name) {
			n++
		}
	}
	return n
}

func TestRegionIsAlignedZeroedAndWritable(t *testing.T) {
	page := os.Getpagesize()
	r := mustAlloc(t, ordinary(3*page+1))
	assert.Equal(t, 4*page, r.Size(), "rounded up to whole pages")
	assert.Len(t, r.Bytes(), r.Size())
	assert.Equal(t, page, r.PageSize())
	assert.False(t, r.Huge())
	assert.NoError(t, r.Fallback(), "ordinary pages were asked for")
	assert.Equal(t, unsafe.Pointer(&r.Bytes()[0]), r.Base())
	assert.Zero(t, uintptr(r.Base())%Align)
	assert.Equal(t, "hugepage-test", r.Name())
	for i, b := range r.Bytes() {
		require.Zero(t, b, "byte %d", i)
	}
	for i := range r.Bytes() {
		r.Bytes()[i] = byte(i)
	}
}

func TestDescriptorAndMappingAreTheSameMemory(t *testing.T) {
	r := mustAlloc(t, ordinary(1<<20))
	r.Bytes()[12345] = 0xa5
	got := make([]byte, 1)
	_, err := unix.Pread(r.FD(), got, 12345)
	require.NoError(t, err)
	assert.Equal(t, byte(0xa5), got[0])
}

// Whoever gets the descriptor could otherwise kill this process.
func TestNobodyCanTruncateTheMemory(t *testing.T) {
	r := mustAlloc(t, ordinary(1<<20))
	assert.ErrorIs(t, unix.Ftruncate(r.FD(), 0), unix.EPERM)
	assert.ErrorIs(t, unix.Ftruncate(r.FD(), 2<<20), unix.EPERM)
	_, err := unix.FcntlInt(uintptr(r.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	assert.ErrorIs(t, err, unix.EPERM, "sealed against further seals")
}

func TestEveryPageIsThereFromTheStart(t *testing.T) {
	r := mustAlloc(t, ordinary(8<<20))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(r.FD(), &st))
	assert.GreaterOrEqual(t, st.Blocks*512, int64(r.Size()))
}

func TestHugePagesAreUsedWhenThereAreSome(t *testing.T) {
	counts, err := Pages()
	require.NoError(t, err)
	free := 0
	for _, c := range counts {
		if c.Node == AnyNode && c.PageSize == Page2M {
			free = c.available()
		}
	}
	r, err := Alloc(Config{Size: Page2M + 1, Node: AnyNode, RequireHuge: true, Name: "huge-test"})
	if free < 2 {
		require.ErrorIs(t, err, ErrNoHugePages)
		return
	}
	require.NoError(t, err)
	assert.True(t, r.Huge())
	assert.Equal(t, Page2M, r.PageSize())
	assert.Equal(t, 2*Page2M, r.Size())
	r.Bytes()[r.Size()-1] = 1
	require.NoError(t, r.Close())
	assert.Zero(t, mapsOf(t, "huge-test"))
	after, err := countPages("/sys", Page2M, AnyNode)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after.Free, 2, "the pages went back")
}

func TestCloseTwiceAndUseAfterwards(t *testing.T) {
	cfg := ordinary(1 << 20)
	cfg.Name = "close-test"
	r, err := Alloc(cfg)
	require.NoError(t, err)
	require.Equal(t, 1, openMemfds(t, "close-test"))
	require.Equal(t, 1, mapsOf(t, "close-test"))
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	assert.Nil(t, r.Bytes())
	assert.Nil(t, r.Base())
	assert.Equal(t, -1, r.FD())
	assert.Equal(t, 1<<20, r.Size())
	_, err = r.Pin()
	assert.ErrorIs(t, err, os.ErrClosed)
	assert.Zero(t, openMemfds(t, "close-test"))
	assert.Zero(t, mapsOf(t, "close-test"))
}

func TestPinnedRegionStaysOpen(t *testing.T) {
	r := mustAlloc(t, ordinary(1<<20))
	one, err := r.Pin()
	require.NoError(t, err)
	two, err := r.Pin()
	require.NoError(t, err)
	one()
	one() // counts once
	err = r.Close()
	require.ErrorIs(t, err, unix.EBUSY)
	assert.ErrorContains(t, err, "vtop.Space.Remove")
	r.Bytes()[0] = 1
	two()
	require.NoError(t, r.Close())
}

func TestManyRegionsLeaveNothingBehind(t *testing.T) {
	cfg := ordinary(64 << 10)
	cfg.Name = "churn-test"
	var open []*Region
	seen := map[unsafe.Pointer]bool{}
	for range 50 {
		r, err := Alloc(cfg)
		require.NoError(t, err)
		require.False(t, seen[r.Base()], "two regions in one place")
		seen[r.Base()] = true
		open = append(open, r)
	}
	for _, r := range open {
		require.NoError(t, r.Close())
	}
	assert.Zero(t, openMemfds(t, cfg.Name))
	assert.Zero(t, mapsOf(t, cfg.Name))
}

// A child process has neither the descriptor nor the mapping.
func TestDescriptorIsClosedOnExec(t *testing.T) {
	if os.Getenv("HUGEPAGE_TEST_CHILD") == "fds" {
		fmt.Printf("memfds=%d maps=%d\n", openMemfds(t, "inherit-test"), mapsOf(t, "inherit-test"))
		return
	}
	cfg := ordinary(1 << 20)
	cfg.Name = "inherit-test"
	mustAlloc(t, cfg)
	require.Equal(t, 1, openMemfds(t, "inherit-test"))
	cmd := exec.Command(os.Args[0], "-test.run=^TestDescriptorIsClosedOnExec$")
	cmd.Env = append(os.Environ(), "HUGEPAGE_TEST_CHILD=fds")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "memfds=0 maps=0\n")
}

func TestErrorsAreTheProcesssOwn(t *testing.T) {
	_, err := Alloc(Config{Size: -1, Name: "x"})
	require.Error(t, err)
	assert.True(t, strings.HasPrefix(err.Error(), `hugepage: region "x": `), "%v", err)
	assert.False(t, errors.Is(err, ErrNoHugePages))
}

func BenchmarkBytes(b *testing.B) {
	r, err := Alloc(ordinary(1 << 20))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for b.Loop() {
		_ = r.Bytes()
	}
}
