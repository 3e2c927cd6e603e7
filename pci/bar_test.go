package pci_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"bare.wire/pci"
)

// config is a function of which only the command register answers, as a test wants it to.
type config struct {
	pci.Function
	command          uint32
	stuck            uint32 // bits that writes do not change
	gone             bool   // reads are all ones
	failRead, reads  int    // the read that fails, from 1; 0: none
	failWrite, wrote bool
}

var errBus = errors.New("no completion")

func (c *config) Name() string { return "0000:03:00.0" }

func (c *config) ReadConfig(off, size int) (uint32, error) {
	if c.reads++; c.reads == c.failRead {
		return 0, errBus
	}
	if off != pci.ConfigCommand || size != 2 {
		return 0, fmt.Errorf("read of %d bytes at %d", size, off)
	}
	if c.gone {
		return 0xffff, nil
	}
	return c.command, nil
}

func (c *config) WriteConfig(off, size int, v uint32) error {
	if c.failWrite || off != pci.ConfigCommand || size != 2 {
		return errBus
	}
	c.wrote = true
	c.command = c.command&c.stuck | v&^c.stuck
	return nil
}

func TestBusMasterIsSwitchedAndNothingElse(t *testing.T) {
	c := &config{command: 0x0142}
	if err := pci.SetBusMaster(c, true); err != nil || c.command != 0x0146 {
		t.Fatalf("on: command %#x, %v", c.command, err)
	}
	if err := pci.SetBusMaster(c, false); err != nil || c.command != 0x0142 {
		t.Fatalf("off: command %#x, %v", c.command, err)
	}
}

func TestBusMasterThatWasNotSeenOffIsAnError(t *testing.T) {
	for name, c := range map[string]*config{
		"the bit sticks":          {command: 0x6, stuck: pci.CommandBusMaster},
		"the function is gone":    {gone: true},
		"the first read fails":    {failRead: 1},
		"the write fails":         {failWrite: true},
		"it cannot be read again": {failRead: 2},
	} {
		err := pci.SetBusMaster(c, false)
		if err == nil || !strings.Contains(err.Error(), c.Name()) {
			t.Errorf("%s: error is %v, want one that names %s", name, err, c.Name())
		}
		if (c.failRead > 0 || c.failWrite) && !errors.Is(err, errBus) {
			t.Errorf("%s: %v does not wrap the cause", name, err)
		}
	}
}

func TestMappedRegistersAreTheMemory(t *testing.T) {
	words := make([]uint32, 4)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 16)
	bar, err := pci.MapBAR(mem)
	if err != nil {
		t.Fatal(err)
	}
	bar.Write32(8, 0xcafe0001)
	words[3] = 7
	if [4]uint32(words) != [4]uint32{2: 0xcafe0001, 3: 7} || bar.Size() != 16 {
		t.Fatalf("memory is %x", words)
	}
	if got := bar.Read32(12); got != 7 {
		t.Fatalf("read %#x, want 7", got)
	}
	for what, bad := range map[string][]byte{"nothing": nil, "odd length": mem[:15], "off its alignment": mem[1:13], "too short": mem[:3]} {
		if _, err := pci.MapBAR(bad); err == nil {
			t.Errorf("%s: mapped", what)
		}
	}
}

func TestRegisterBeyondTheWindowIsNotWritten(t *testing.T) {
	words := make([]uint32, 4)
	bar, err := pci.MapBAR(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 12))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil || words[3] != 0 {
			t.Fatal("a write beyond the window went through")
		}
	}()
	bar.Write32(12, 1)
}

func ExampleMapBAR() {
	registers := make([]uint32, 1024) // stands for a mapping of a card's BAR 0
	bar, err := pci.MapBAR(unsafe.Slice((*byte)(unsafe.Pointer(&registers[0])), 4096))
	if err != nil {
		fmt.Println(err)
		return
	}
	bar.Write32(0x100, 42)
	fmt.Println(bar.Size(), bar.Read32(0x100))
	// Output: 4096 42
}
