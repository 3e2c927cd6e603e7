package hugepage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// PageCount is the kernel's account of huge pages of one size, all figures in
// pages.
type PageCount struct {
	PageSize int // bytes
	Node     int // NUMA node, or AnyNode for the whole machine
	Total    int // set aside, free or not, surplus ones included
	Free     int
	Reserved int // free but promised to a mapping; known for the whole machine only
	Surplus  int // above what was asked for, made by overcommitting
}

// available is how many pages a new mapping can have.
func (c PageCount) available() int { return max(c.Free-c.Reserved, 0) }

// Pages tells how many huge pages there are of each size: first for the whole
// machine, then for each NUMA node. Read from /sys/kernel/mm/hugepages and
// /sys/devices/system/node. A kernel without huge pages gives an empty list.
func Pages() ([]PageCount, error) { return pagesAt("/sys") }

func pagesAt(sys string) ([]PageCount, error) {
	sizes, err := pageSizes(sys)
	if err != nil {
		return nil, fmt.Errorf("hugepage: %w", err)
	}
	nodes := []int{AnyNode}
	if _, err := os.Stat(nodeDir(sys)); err == nil {
		online, err := onlineNodes(sys)
		if err != nil {
			return nil, fmt.Errorf("hugepage: %w", err)
		}
		nodes = append(nodes, online...)
	}
	var counts []PageCount
	for _, node := range nodes {
		for _, size := range sizes {
			c, err := countPages(sys, size, node)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a node without memory of its own
			}
			if err != nil {
				return nil, fmt.Errorf("hugepage: %w", err)
			}
			counts = append(counts, c)
		}
	}
	return counts, nil
}

// pageSizes lists the sizes in bytes of the huge pages that the kernel knows,
// ascending.
func pageSizes(sys string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(sys, "kernel/mm/hugepages"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list huge page sizes: %w", err)
	}
	var sizes []int
	for _, e := range entries {
		text, isSize := strings.CutPrefix(e.Name(), "hugepages-")
		text, isKB := strings.CutSuffix(text, "kB")
		kb, err := strconv.Atoi(text)
		// Page sizes are powers of two; the bound keeps kb<<10 in range.
		if !isSize || !isKB || err != nil || kb <= 0 || kb > maxSize>>10 || kb&(kb-1) != 0 {
			continue
		}
		sizes = append(sizes, kb<<10)
	}
	slices.Sort(sizes)
	return sizes, nil
}

// countPages reads the counters of one page size, on one node or AnyNode.
func countPages(sys string, page, node int) (PageCount, error) {
	c := PageCount{PageSize: page, Node: node}
	dir := countersDir(sys, page, node)
	files := []struct {
		name string
		to   *int
	}{
		{"nr_hugepages", &c.Total},
		{"free_hugepages", &c.Free},
		{"surplus_hugepages", &c.Surplus},
		{"resv_hugepages", &c.Reserved},
	}
	if node != AnyNode {
		files = files[:3] // the kernel keeps no reservations per node
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.name))
		if err != nil {
			return c, fmt.Errorf("count huge pages: %w", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || n < 0 {
			return c, fmt.Errorf("count huge pages: %s/%s holds %q, not a number", dir, f.name, clip(text))
		}
		*f.to = n
	}
	return c, nil
}

func countersDir(sys string, page, node int) string {
	sub := fmt.Sprintf("hugepages-%dkB", page>>10)
	if node == AnyNode {
		return filepath.Join(sys, "kernel/mm/hugepages", sub)
	}
	return filepath.Join(nodeDir(sys), fmt.Sprintf("node%d", node), "hugepages", sub)
}

func nodeDir(sys string) string { return filepath.Join(sys, "devices/system/node") }

// onlineNodes lists the NUMA nodes; a kernel without NUMA has node 0.
func onlineNodes(sys string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(nodeDir(sys), "online"))
	if errors.Is(err, fs.ErrNotExist) {
		return []int{0}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list NUMA nodes: %w", err)
	}
	nodes, err := parseList(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("list NUMA nodes: %w", err)
	}
	return nodes, nil
}

// maxNode bounds the node numbers believed; kernels are built for up to 1024.
const maxNode = 1 << 12

// parseList reads the kernel's list format: "0-1,3".
func parseList(text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, errA := strconv.Atoi(lo)
		b, errB := strconv.Atoi(hi)
		if errA != nil || errB != nil || a < 0 || b < a || b >= maxNode || len(list) > maxNode {
			return nil, fmt.Errorf("bad number list %q", clip([]byte(text)))
		}
		for n := a; n <= b; n++ {
			list = append(list, n)
		}
	}
	return list, nil
}

// memoryFigure reads one line of /proc/meminfo, in bytes: MemTotal, or
// MemAvailable, which is what can be used without swapping.
func memoryFigure(proc, name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
		if err != nil || kb < 0 || kb > maxSize>>10 {
			return 0, fmt.Errorf("bad line %q", clip([]byte(line)))
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("no %s in meminfo", name)
}

// provideCommand is the shell command, for root, after which need more pages
// are available.
func provideCommand(c PageCount, need int) string {
	want := c.Total + max(need-c.available(), 1)
	if c.Node == AnyNode && c.PageSize == Page2M {
		return fmt.Sprintf("sysctl -w vm.nr_hugepages=%d", want)
	}
	return fmt.Sprintf("echo %d > %s/nr_hugepages", want, countersDir("/sys", c.PageSize, c.Node))
}

func onNode(node int) string {
	if node == AnyNode {
		return ""
	}
	return fmt.Sprintf(" on NUMA node %d", node)
}

// sizeText writes bytes in the largest unit that leaves no remainder.
func sizeText(n int) string {
	units := []struct {
		shift int
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}}
	for _, u := range units {
		if n != 0 && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

func sizeList(sizes []int) string {
	words := make([]string, len(sizes))
	for i, s := range sizes {
		words[i] = sizeText(s)
	}
	return strings.Join(words, ", ")
}

// clip keeps what is quoted in an error short.
func clip(b []byte) string { return string(b[:min(len(b), 40)]) }
