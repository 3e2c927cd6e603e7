package hugepage

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxSize bounds Config.Size in bytes: far above any machine and far
	// below where sums of sizes and alignments overflow.
	maxSize = 1 << 46

	// maxName is what memfd_create leaves for a name, in bytes: 255 less
	// the "memfd:" that the kernel puts in front.
	maxName = 249
)

// host is the part of the machine that Alloc talks to; tests replace pieces.
type host struct {
	sys, proc string // roots of the two file systems
	basePage  int    // bytes
	memfd     func(name string, flags int) (fd int, err error)
	mapFixed  func(base unsafe.Pointer, size, prot, flags, fd int) error
	populate  func(b []byte) error
	mbind     func(b []byte, node int) error
}

func linuxHost() host {
	return host{
		sys:      "/sys",
		proc:     "/proc",
		basePage: os.Getpagesize(),
		memfd:    unix.MemfdCreate,
		mapFixed: mapFixed,
		populate: madvisePopulate,
		mbind:    mbind,
	}
}

func alloc(cfg Config, h host) (*Region, error) {
	if cfg.Name == "" {
		cfg.Name = "barewire"
	}
	if err := h.check(cfg); err != nil {
		return nil, fmt.Errorf("hugepage: region %q: %w", cfg.Name, err)
	}
	var failed error
	for _, page := range h.candidates(cfg) {
		r, err := h.try(cfg, page)
		if err == nil {
			if !r.huge && cfg.PageSize == 0 {
				r.fallback = failed
			}
			return r, nil
		}
		// The last failure is the one that a user can do something about:
		// few machines have 1 GiB pages set aside, and none need them.
		failed = fmt.Errorf("hugepage: region %q: %w", cfg.Name, err)
	}
	return nil, failed
}

// check refuses what no machine or not this one can give.
func (h host) check(cfg Config) error {
	switch {
	case cfg.Size <= 0:
		return fmt.Errorf("size %d: must be at least 1 byte", cfg.Size)
	case cfg.Size > maxSize:
		return fmt.Errorf("size %d: more than %s is surely a mistake", cfg.Size, sizeText(maxSize))
	case strings.IndexByte(cfg.Name, 0) >= 0:
		return errors.New("the name contains a NUL byte")
	case len(cfg.Name) > maxName:
		return fmt.Errorf("the name is %d bytes long, at most %d are possible", len(cfg.Name), maxName)
	}
	if total, err := memoryFigure(h.proc, "MemTotal"); err == nil && cfg.Size > total {
		return fmt.Errorf("%s wanted, but the machine has only %s: %w", sizeText(cfg.Size), sizeText(total), unix.ENOMEM)
	}
	if err := h.checkPageSize(cfg); err != nil {
		return err
	}
	return h.checkNode(cfg.Node)
}

func (h host) checkPageSize(cfg Config) error {
	if cfg.PageSize == 0 {
		return nil
	}
	if cfg.PageSize == h.basePage {
		if cfg.RequireHuge {
			return fmt.Errorf("page size %s is the ordinary one, but huge pages are required", sizeText(cfg.PageSize))
		}
		return nil
	}
	have, err := pageSizes(h.sys)
	if err != nil {
		return err
	}
	if slices.Contains(have, cfg.PageSize) {
		return nil
	}
	return fmt.Errorf("page size %d: the kernel has %s; 0 lets Alloc choose",
		cfg.PageSize, sizeList(append([]int{h.basePage}, have...)))
}

func (h host) checkNode(node int) error {
	if node == AnyNode {
		return nil
	}
	nodes, err := onlineNodes(h.sys)
	if err != nil {
		return err
	}
	if !slices.Contains(nodes, node) {
		return fmt.Errorf("NUMA node %d does not exist or is offline; online: %v (%d for any)", node, nodes, AnyNode)
	}
	return nil
}

// candidates lists the page sizes to try, best first.
func (h host) candidates(cfg Config) []int {
	if cfg.PageSize != 0 {
		return []int{cfg.PageSize}
	}
	var c []int
	if roundUp(cfg.Size, Page1G)-cfg.Size <= cfg.Size/8 {
		c = append(c, Page1G)
	}
	c = append(c, Page2M)
	if !cfg.RequireHuge {
		c = append(c, h.basePage)
	}
	return c
}

// try makes the region on pages of one size, or leaves nothing behind.
func (h host) try(cfg Config, page int) (_ *Region, err error) {
	size := roundUp(cfg.Size, page)
	huge := page != h.basePage
	if !huge {
		if err := h.checkAvailable(size); err != nil {
			return nil, err
		}
	}
	fd, err := h.openMemfd(cfg.Name, size, page)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if huge {
		if err := reserveHuge(fd, size); err != nil {
			return nil, h.noHugePages(size, page, cfg.Node, err)
		}
	}
	p, err := reserve(size, max(Align, page))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.release())
		}
	}()
	if err := h.mapFixed(p.base, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd); err != nil {
		if huge {
			return nil, h.noHugePages(size, page, cfg.Node, err)
		}
		return nil, fmt.Errorf("map %s: %w", sizeText(size), err)
	}
	mem := unsafe.Slice((*byte)(p.base), size)
	if err := h.bind(mem, cfg.Node); err != nil {
		return nil, err
	}
	if err := h.fill(mem, page, cfg.Node); err != nil {
		return nil, err
	}
	r := &Region{name: cfg.Name, size: size, pageSize: page, huge: huge}
	r.mem.Store(&mapping{place: p, bytes: mem, fd: fd})
	return r, nil
}

// openMemfd gives a close-on-exec memfd of size bytes that nobody can shrink:
// whoever is handed the descriptor could otherwise kill this process with a
// SIGBUS.
func (h host) openMemfd(name string, size, page int) (fd int, err error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if page != h.basePage {
		flags |= unix.MFD_HUGETLB | bits.TrailingZeros(uint(page))<<unix.MFD_HUGE_SHIFT
	}
	fd, err = h.memfd(name, flags)
	if err != nil {
		if page != h.basePage {
			return -1, fmt.Errorf("%w: the kernel gives no memfd on %s pages: %w", ErrNoHugePages, sizeText(page), err)
		}
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set the size of the memfd to %s: %w", sizeText(size), err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("seal the memfd: %w", err)
	}
	return fd, nil
}

// bind puts the memory on a NUMA node. A machine with one node has nothing to
// decide, and containers often forbid mbind.
func (h host) bind(mem []byte, node int) error {
	if node == AnyNode {
		return nil
	}
	if h.countedNode(node) == AnyNode {
		return nil
	}
	if err := h.mbind(mem, node); err != nil {
		return fmt.Errorf("bind to NUMA node %d: %w (needs the mbind system call; %d takes any node)", node, err, AnyNode)
	}
	return nil
}

// fill backs every page with memory now, so that a shortage is an error here
// and not a SIGBUS later.
func (h host) fill(mem []byte, page, node int) error {
	err := h.populate(mem)
	if errors.Is(err, unix.EINVAL) { // Linux before 5.14
		if page != h.basePage && !h.enoughFree(len(mem)/page, page, node) {
			return h.noHugePages(len(mem), page, node, unix.ENOMEM)
		}
		err = touch(mem, page)
	}
	if err == nil {
		return nil
	}
	if page != h.basePage {
		return h.noHugePages(len(mem), page, node, err)
	}
	return fmt.Errorf("populate %s: %w: the machine or the control group is short of memory", sizeText(len(mem)), err)
}

// checkAvailable refuses ordinary memory that the machine cannot spare: to
// populate it would wake the out-of-memory killer.
func (h host) checkAvailable(size int) error {
	have, err := memoryFigure(h.proc, "MemAvailable")
	if err != nil {
		return nil // no figure, no objection
	}
	if size > have {
		return fmt.Errorf("%s wanted, but the machine has only %s available: %w", sizeText(size), sizeText(have), unix.ENOMEM)
	}
	return nil
}

// noHugePages says what is missing and which command provides it.
func (h host) noHugePages(size, page, node int, cause error) error {
	need := size / page
	node = h.countedNode(node)
	c, err := countPages(h.sys, page, node)
	if err != nil {
		return fmt.Errorf("%w: %d of %s needed: %w", ErrNoHugePages, need, sizeText(page), cause)
	}
	return fmt.Errorf("%w: %d of %s needed%s, %d free (%w); to provide them: %s",
		ErrNoHugePages, need, sizeText(page), onNode(node), c.available(), cause, provideCommand(c, need))
}

// enoughFree tells whether need pages can be touched without a SIGBUS. The
// pages of this mapping are reserved by now, so they are free but not available.
func (h host) enoughFree(need, page, node int) bool {
	c, err := countPages(h.sys, page, h.countedNode(node))
	return err == nil && c.Free >= need
}

// countedNode is the node whose counters decide. Where there is only one, the
// machine's do: they are there without NUMA too, and their command is plainer.
func (h host) countedNode(node int) int {
	if nodes, err := onlineNodes(h.sys); err == nil && len(nodes) == 1 {
		return AnyNode
	}
	return node
}

// madvisePopulate is MADV_POPULATE_WRITE, which faults all pages in and
// reports what a store would have died of. It is interrupted by fatal signals
// only; the bound is there in case that changes.
func madvisePopulate(b []byte) error {
	var err error
	for range 100 {
		if err = unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != unix.EINTR {
			break
		}
	}
	return err
}

// touch stores into each page and turns the SIGBUS of a shortage into an error.
func touch(b []byte, page int) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", unix.ENOMEM, p)
		}
	}()
	for i := 0; i < len(b); i += page {
		b[i] = 0
	}
	return nil
}

// mbind makes all pages of b come from one NUMA node, see mbind(2).
func mbind(b []byte, node int) error {
	const word = bits.UintSize
	mask := make([]uint, node/word+1)
	mask[node/word] = 1 << (node % word)
	// The kernel looks at one bit fewer than it is told.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MPOL_BIND, uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*word+1), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// mapFixed maps over what is at base, which the caller owns. The raw system
// call does not turn the address it returns into a pointer, which the pointer
// checks of race builds would object to.
func mapFixed(base unsafe.Pointer, size, prot, flags, fd int) error {
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(base), uintptr(size),
		uintptr(prot), uintptr(flags|unix.MAP_FIXED), uintptr(fd), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// reserveHuge sets huge pages aside for the memfd, or fails without harm: they
// stay its own when the mapping that asked for them goes. A mapping over a
// reserved stretch must not be the first to ask. Where it is refused, the kernel
// has taken the stretch away already, anybody may map something into the hole,
// and giving the stretch back would tear that out.
func reserveHuge(fd, size int) error {
	probe, err := unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	return unix.MunmapPtr(probe, uintptr(size))
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
