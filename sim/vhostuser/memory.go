package vhostuser

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"bare.wire/sim"
	"bare.wire/virtio/spec/vhost"
)

const (
	// maxTable is the most regions of a SET_MEM_TABLE (the protocol's own limit).
	maxTable = vhost.MaxRegions
	// maxSlots is the most regions that ADD_MEM_REG may add up to; the front end is told by GET_MAX_MEM_SLOTS.
	maxSlots = 32
	// maxMapped bounds what a front end may have mapped here, bytes: a sparse file can be of any size.
	maxMapped = 1 << 40
)

// describe is a region in words, as errors have it.
func describe(r vhost.Region) string {
	return fmt.Sprintf("region of %#x bytes at guest address %#x, user address %#x, offset %#x", r.Size, r.Addr, r.UserAddr, r.Offset)
}

// mapping is a region that is mapped. Its Addr is what descriptors use, its UserAddr what rings are told by.
type mapping struct {
	vhost.Region
	b     []byte // Size bytes
	whole []byte // what was mapped: b, and what its pages bring along
}

// Memory is the front end's memory: a sim.Memory by guest addresses. It is changed under the lock of the world whose device
// uses it, and nothing that Bytes returned is used after a change.
type Memory struct {
	table  []*mapping
	faults atomic.Uint64
}

var _ sim.Memory = (*Memory)(nil)

// Bytes implements sim.Memory.
func (m *Memory) Bytes(bus uint64, n int) ([]byte, error) {
	for _, r := range m.table {
		if off := bus - r.Addr; bus >= r.Addr && off < r.Size {
			end := off + min(uint64(max(n, 1)), r.Size-off)
			return r.b[off:end:end], nil
		}
	}
	m.faults.Add(1)
	return nil, fmt.Errorf("guest address %#x: in none of the %d regions of the front end's memory", bus, len(m.table))
}

// Faults is how many accesses went to no region.
func (m *Memory) Faults() uint64 { return m.faults.Load() }

// guest translates an address of the front end's process into a guest address; n bytes from it on lie in one region.
func (m *Memory) guest(user uint64, n uint64) (uint64, error) {
	for _, r := range m.table {
		if off := user - r.UserAddr; user >= r.UserAddr && off < r.Size {
			if n > r.Size-off {
				return 0, fmt.Errorf("user address %#x: %#x bytes from there on run out of its %s", user, n, describe(r.Region))
			}
			return r.Addr + off, nil
		}
	}
	return 0, fmt.Errorf("user address %#x: in none of the %d regions of the front end's memory", user, len(m.table))
}

// contains says whether p points into mapped memory: an access that faulted there was to memory that its owner took away.
func (m *Memory) contains(p uintptr) bool {
	for _, r := range m.table {
		if base := uintptr(unsafe.Pointer(unsafe.SliceData(r.whole))); p >= base && p-base < uintptr(len(r.whole)) {
			return true
		}
	}
	return false
}

// set replaces all regions. Old mappings go once the new ones are there; on an error the table is as it was. It keeps no
// descriptor.
func (m *Memory) set(regions []vhost.Region, fds []int) error {
	if len(regions) != len(fds) {
		return fmt.Errorf("memory table of %d regions with %d descriptors", len(regions), len(fds))
	}
	if len(regions) > maxTable {
		return fmt.Errorf("memory table of %d regions: at most %d; more by CONFIGURE_MEM_SLOTS", len(regions), maxTable)
	}
	next := &Memory{}
	for i, r := range regions {
		if err := next.add(r, fds[i]); err != nil {
			return errors.Join(err, next.clear())
		}
	}
	old := Memory{table: m.table}
	m.table = next.table
	return old.clear()
}

// add maps one region more.
func (m *Memory) add(r vhost.Region, fd int) error {
	if len(m.table) >= maxSlots {
		return fmt.Errorf("%s: there are %d already, the most that there can be", describe(r), len(m.table))
	}
	if err := m.check(r); err != nil {
		return err
	}
	mapped, err := mapRegion(r, fd)
	if err != nil {
		return err
	}
	m.table = append(m.table[:len(m.table):len(m.table)], mapped)
	return nil
}

// remove takes away the region that has the addresses and the size of r.
func (m *Memory) remove(r vhost.Region) error {
	for i, x := range m.table {
		if x.Addr == r.Addr && x.UserAddr == r.UserAddr && x.Size == r.Size {
			m.table = append(m.table[:i:i], m.table[i+1:]...)
			return x.unmap()
		}
	}
	return fmt.Errorf("remove a %s: there is none", describe(r))
}

// clear takes all away.
func (m *Memory) clear() error {
	var errs []error
	for _, r := range m.table {
		errs = append(errs, r.unmap())
	}
	m.table = nil
	return errors.Join(errs...)
}

// check says what is wrong with r beside the regions that there are.
func (m *Memory) check(r vhost.Region) error {
	if r.Size == 0 {
		return fmt.Errorf("%s: empty", describe(r))
	}
	for _, first := range []uint64{r.Addr, r.UserAddr, r.Offset} {
		if first > math.MaxUint64-r.Size {
			return fmt.Errorf("%s: runs over the end of addresses", describe(r))
		}
	}
	sum := r.Size
	for _, x := range m.table {
		if overlap(r.Addr, r.Size, x.Addr, x.Size) || overlap(r.UserAddr, r.Size, x.UserAddr, x.Size) {
			return fmt.Errorf("%s: overlaps the %s", describe(r), describe(x.Region))
		}
		sum += x.Size // no overflow: each is at most maxMapped
	}
	if r.Size > maxMapped || sum > maxMapped {
		return fmt.Errorf("%s: more than %d GiB of memory in all", describe(r), maxMapped>>30)
	}
	return nil
}

func overlap(a, n, b, k uint64) bool { return a < b+k && b < a+n }

// mapRegion maps what r says of the file. The file has to be as long now; one that is cut later makes accesses fault, which a
// session turns into its end (see guard). It has to be one of memory: of others the front end may be the file system, and let an
// access wait for ever.
func mapRegion(r vhost.Region, fd int) (*mapping, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil { // which there are of such files only
		return nil, fmt.Errorf("%s: its file is not in memory: %w; share a memfd, or a file of a tmpfs or hugetlbfs", describe(r), err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%s: its file: %w", describe(r), err)
	}
	if st.Size < 0 || r.Offset+r.Size > uint64(st.Size) {
		return nil, fmt.Errorf("%s: its file has %#x bytes", describe(r), st.Size)
	}
	// Files on huge pages are mapped by whole pages of theirs.
	page := uint64(unix.Getpagesize())
	if b := uint64(st.Blksize); b > page && b&(b-1) == 0 && b <= 1<<30 && uint64(st.Size)%b == 0 {
		page = b
	}
	first, end := r.Offset&^(page-1), (r.Offset+r.Size+page-1)&^(page-1)
	whole, err := unix.Mmap(fd, int64(first), int(end-first), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", describe(r), err)
	}
	skip := r.Offset - first
	return &mapping{Region: r, b: whole[skip : skip+r.Size : skip+r.Size], whole: whole}, nil
}

func (m *mapping) unmap() error {
	if err := unix.Munmap(m.whole); err != nil {
		return fmt.Errorf("unmap %s: %w", describe(m.Region), err)
	}
	return nil
}
