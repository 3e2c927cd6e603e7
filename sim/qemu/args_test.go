package qemu

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsMissingIsAdded(t *testing.T) {
	const hole = "-global q35-pcihost.pci-hole64-size=0"
	const ram = "-object memory-backend-memfd,id=nicsim-ram,share=on,size="
	for _, c := range []struct{ args, want string }{
		{"-nodefaults", "-machine q35 -accel tcg " + ram + "128M -machine memory-backend=nicsim-ram " + hole},
		{"", "-machine q35 -accel tcg " + ram + "128M -machine memory-backend=nicsim-ram " + hole + " -vga none"},
		{"-nodefaults -m 1G -M q35 -accel tcg", ram + "1G -machine memory-backend=nicsim-ram " + hole},
		{"-nodefaults -m 512 -M pc-q35-7.2 -machine accel=tcg", ram + "512M -machine memory-backend=nicsim-ram " + hole},
		{"-vga none -m size=2G,slots=2 --machine type=q35,kernel-irqchip=off -smp 1", "-accel tcg " + ram + "2G -machine memory-backend=nicsim-ram " + hole},
		{"-nodefaults -smp 4 -M q35,memory-backend=m -object memory-backend-memfd,id=m,size=1G", "-accel tcg,thread=single " + hole},
		{"-nodefaults -smp 4 -accel tcg,thread=single -M q35,memory-backend=m -object memory-backend-memfd,id=m,size=1G,share=on", hole},
		{"-nodefaults -accel tcg -M q35 -object memory-backend-file,id=a,mem-path=/dev/shm,size=1G,share=on -numa node,memdev=a", hole},
		{"-nodefaults -smp sockets=1,cores=1 -accel tcg,thread=multi -M q35 -append qtest -m 1G", ram + "1G -machine memory-backend=nicsim-ram " + hole},
		{"-global q35-pcihost.pci-hole64-size=1G -nodefaults", "-machine q35 -accel tcg " + ram + "128M -machine memory-backend=nicsim-ram"},
	} {
		added, err := check(strings.Fields(c.args))
		require.NoError(t, err, c.args)
		require.Equal(t, c.want, strings.Join(added, " "), c.args)
	}
}

func TestWhatCannotWorkIsToldWithItsRemedy(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-qtest unix:x", "leave it out"},
		{"-daemonize", "leave it out"},
		{"-device x-pci-proxy-dev,fd=3", "--slot"},
		{"-enable-kvm", "write -accel tcg"},
		{"-accel kvm", "write -accel tcg"},
		{"-M q35,accel=kvm:tcg", "write -accel tcg"},
		{"-M pc", "write -M q35"},
		{"-M microvm", "write -M q35"},
		{"-smp 2 -accel tcg", "-accel tcg,thread=single"},
		{"-smp cpus=2 -accel tcg,thread=multi", "-accel tcg,thread=single"},
		{"-smp sockets=2,cores=2 -accel tcg", "4 CPUs"},
		{"-smp 2 -M q35,accel=tcg", "-accel tcg,thread=single"},
		{"-smp two", "not a number"},
		{"-smp 0", "not a number"},
		{"-M q35,memory-backend=m", `no -object has the id "m"`},
		{"-M q35,memory-backend=m -object memory-backend-ram,id=m,size=1G", "memory-backend-memfd,id=m"},
		{"-M q35,memory-backend=m -object memory-backend-memfd,id=m,size=1G,share=off", "add share=on"},
		{"-M q35,memory-backend=m -object memory-backend-file,id=m,size=1G,mem-path=/dev/shm", "add share=on"},
		{"-numa node,memdev=n", `no -object has the id "n"`},
		{"-object memory-backend-memfd,id=nicsim-ram,size=1G", "give it another"},
	} {
		_, err := check(strings.Fields(c.args))
		require.ErrorContains(t, err, c.want, c.args)
	}
}

func TestCommasInValuesAreUnderstood(t *testing.T) {
	require.Equal(t, map[string]string{"type": "q35", "a": "b,c", "d": "on"}, keys("q35,a=b,,c,d", "type"))
	require.Equal(t, map[string]string{"size": "1G", "x": "y=z"}, keys("x=y=z,size=1G", "size"))
}

// FuzzCheck reads command lines of any contents.
func FuzzCheck(f *testing.F) {
	f.Add("-smp 2 -M q35,memory-backend=m -object memory-backend-memfd,id=m")
	f.Add("- -- -smp sockets=4096,cores=4096,threads=4096,dies=4096 -m")
	f.Add("-M ,,,=,= -accel = -object id= -numa memdev=")
	f.Fuzz(func(_ *testing.T, line string) {
		_, _ = check(strings.Split(line, " ")) // it says what it says; it must not crash
	})
}

func TestWhereAFunctionIs(t *testing.T) {
	const ports = "none -device pcie-root-port,id=b,addr=1a -device pcie-root-port,addr=0x5,id=a,chassis=1 -device pcie-root-port,id=c -device pcie-root-port,id=d,addr=99"
	m := newMachine(Config{}, strings.Fields(ports))
	defer m.Close()
	for _, c := range []struct {
		at        Slot
		requester uint16
		pin       int
		device    string
	}{
		{Slot{Slot: 4}, 0x20, 20, "x-pci-proxy-dev,id=nicsim0,fd=3,addr=0x4"},
		{Slot{Slot: 5, Bus: "pcie.0"}, 0x28, 21, "x-pci-proxy-dev,id=nicsim1,fd=3,addr=0x5,bus=pcie.0"},
		{Slot{Bus: "a"}, 0x100, 21, "x-pci-proxy-dev,id=nicsim2,fd=3,addr=0x0,bus=a"},
		{Slot{Bus: "b"}, 0x200, 22, "x-pci-proxy-dev,id=nicsim3,fd=3,addr=0x0,bus=b"},
		{Slot{Bus: "a", Requester: 0x300}, 0x300, 21, "x-pci-proxy-dev,id=nicsim4,fd=3,addr=0x0,bus=a"},
	} {
		f, err := m.Add(c.at)
		require.NoError(t, err)
		require.Equal(t, c.requester, f.mem.requester)
		require.Equal(t, c.pin, f.pin)
		require.Equal(t, c.device, f.deviceArg(3))
	}
	for _, bus := range []string{"c", "d", "e"} {
		_, err := m.Add(Slot{Bus: bus})
		require.ErrorContains(t, err, "pcie-root-port,id="+bus)
	}
}
