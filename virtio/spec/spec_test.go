package spec_test

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"bare.wire/virtio/spec"
)

func TestEachFeatureHasANameOfItsOwn(t *testing.T) {
	var all spec.Features
	for _, name := range spec.FeatureNames() {
		f, err := spec.FeatureByName(name)
		if err != nil || bits.OnesCount64(uint64(f)) != 1 || all&f != 0 {
			t.Errorf("%s: %#x, %v", name, uint64(f), err)
		}
		if f.String() != name {
			t.Errorf("%s prints as %s", name, f)
		}
		all |= f
	}
	if got := all.String(); got != strings.Join(spec.FeatureNames(), ",") {
		t.Errorf("all of them print as %s", got)
	}
	if got := (spec.FeatureMAC | 1<<41 | spec.Features(0)).String(); got != "mac,bit_41" {
		t.Error(got)
	}
	if got := spec.Features(0).String(); got != "none" {
		t.Error(got)
	}
}

// TestFeaturesWithoutWhatTheyNeed has §5.1.3.1, by chains of features.
func TestFeaturesWithoutWhatTheyNeed(t *testing.T) {
	const tso = spec.FeatureHostTSO4 | spec.FeatureHostECN | spec.FeatureRSCExt
	for _, x := range []struct{ f, dropped spec.Features }{
		{0, 0},
		{tso, tso},
		{tso | spec.FeatureCSum, 0},
		{spec.FeatureHostECN | spec.FeatureCSum, spec.FeatureHostECN},
		{spec.FeatureHostECN | spec.FeatureCSum | spec.FeatureHostTSO6, 0},
		{spec.FeatureGuestTSO4 | spec.FeatureGuestECN | spec.FeatureCSum, spec.FeatureGuestTSO4 | spec.FeatureGuestECN},
		{spec.FeatureMQ | spec.FeatureRSS | spec.FeatureMAC, spec.FeatureMQ | spec.FeatureRSS},
		{spec.FeatureMQ | spec.FeatureRSS | spec.FeatureCtrlVQ, 0},
	} {
		kept, dropped := x.f.Consistent()
		if dropped != x.dropped || kept != x.f&^x.dropped {
			t.Errorf("%v: %v is kept, %v dropped, want %v", x.f, kept, dropped, x.dropped)
		}
	}
}

func TestRestriction(t *testing.T) {
	const offered = spec.FeatureMAC | spec.FeatureCSum | spec.FeatureEventIdx | spec.FeatureVersion1 | spec.FeatureAccessPlatform
	for _, x := range []struct {
		list string
		want spec.Features
	}{
		{"", offered},
		{"-event_idx, -csum", offered &^ (spec.FeatureEventIdx | spec.FeatureCSum)},
		{"mac", spec.FeatureMAC | spec.FeatureVersion1 | spec.FeatureAccessPlatform},
		{"mac,csum,-csum", spec.FeatureMAC | spec.FeatureVersion1 | spec.FeatureAccessPlatform},
		{"-version_1", offered &^ spec.FeatureVersion1},
		{"mq", spec.FeatureVersion1 | spec.FeatureAccessPlatform}, // what is not offered is not there
	} {
		r, err := spec.ParseRestriction(x.list)
		if err != nil {
			t.Errorf("%q: %v", x.list, err)
		}
		if got := r.Apply(offered); got != x.want {
			t.Errorf("%q leaves %v, want %v", x.list, got, x.want)
		}
	}
	for _, list := range []string{"mrgrxbuf", "mac,,csum", "--mac", ",", "bit_41"} {
		if _, err := spec.ParseRestriction(list); err == nil || !strings.Contains(err.Error(), "mrg_rxbuf") {
			t.Errorf("%q: %v, want an error with the names there are", list, err)
		}
	}
}

func TestControlQueueIsBehindThePairsThereCanBe(t *testing.T) {
	for _, x := range []struct {
		f    spec.Features
		want int
	}{{0, 2}, {spec.FeatureHashReport, 2}, {spec.FeatureMQ, 256}, {spec.FeatureRSS, 256}} {
		if got := spec.ControlQueue(x.f, 128); got != x.want {
			t.Errorf("%v: queue %d, want %d", x.f, got, x.want)
		}
	}
	if spec.ReceiveQueue(127) != 254 || spec.TransmitQueue(127) != 255 {
		t.Error("the last pair is not that in front of the control queue")
	}
}

func TestHeaderSize(t *testing.T) {
	for _, x := range []struct {
		f    spec.Features
		want int
	}{{0, 10}, {spec.FeatureMrgRxBuf, 12}, {spec.FeatureVersion1, 12}, {spec.FeatureVersion1 | spec.FeatureHashReport, 20}} {
		if got := spec.HeaderSize(x.f); got != x.want {
			t.Errorf("%v: %d bytes, want %d", x.f, got, x.want)
		}
	}
}

// TestSplitLayouts holds layouts against §2.7, and those of the legacy interface against the formula of §2.7.2, which leaves a
// driver no choice.
func TestSplitLayouts(t *testing.T) {
	for n := 1; n <= spec.MaxQueueSize; n *= 2 {
		for _, align := range []int{4, 64, spec.LegacyAlign} {
			l, err := spec.NewSplitLayout(n, align)
			if err != nil {
				t.Fatal(err)
			}
			if l.Avail != 16*n || l.AvailEntries != l.Avail+4 || l.UsedEvent != l.Avail+4+2*n || l.UsedEntries != l.Used+4 || l.AvailEvent != l.Used+4+8*n {
				t.Errorf("%d descriptors: %+v", n, l)
			}
			if l.Used%align != 0 || l.Used < l.UsedEvent+4 || l.Bytes < l.AvailEvent+4 {
				t.Errorf("%d descriptors, aligned to %d: parts overlap or lie badly: %+v", n, align, l)
			}
			if n >= 2 && (l.UsedEvent%4 != 0 || l.AvailEvent%4 != 0) {
				t.Errorf("%d descriptors: event words are not those of aligned words of four bytes: %+v", n, l)
			}
			if up := (16*n + 2*(3+n) + align - 1) / align * align; align == spec.LegacyAlign && l.Used != up {
				t.Errorf("%d descriptors: the used ring is at %d, a legacy device looks at %d", n, l.Used, up)
			}
		}
	}
	for _, x := range [][2]int{{0, 4}, {-2, 4}, {3, 4}, {65536, 4}, {8, 2}, {8, 12}, {8, 0}, {8, -4}} {
		if _, err := spec.NewSplitLayout(x[0], x[1]); err == nil {
			t.Errorf("%d descriptors aligned to %d: want an error", x[0], x[1])
		}
	}
}

func TestPackedLayouts(t *testing.T) {
	for _, n := range []int{1, 2, 3, 255, 2047, spec.MaxQueueSize} {
		l, err := spec.NewPackedLayout(n)
		if err != nil || l.DriverEvent != 16*n || l.DeviceEvent != l.DriverEvent+4 || l.Bytes != l.DeviceEvent+4 {
			t.Errorf("%d descriptors: %+v, %v", n, l, err)
		}
	}
	for _, n := range []int{0, -1, spec.MaxQueueSize + 1} {
		if _, err := spec.NewPackedLayout(n); err == nil {
			t.Errorf("%d descriptors: want an error", n)
		}
	}
}

// TestNeedEventWhenItIsPassed counts through what was added one by one, which the comparison does at once.
func TestNeedEventWhenItIsPassed(t *testing.T) {
	for _, from := range []uint16{0, 1, 100, 0x7FFE, 0xFFF0, 0xFFFF} {
		for n := range uint16(20) {
			for event := from - 22; event != from+22; event++ {
				want := false
				for i := range n {
					want = want || from+i == event
				}
				if got := spec.NeedEvent(event, from+n, from); got != want {
					t.Fatalf("from %d to %d with event %d: %t", from, from+n, event, got)
				}
			}
		}
	}
}

func ExampleParseRestriction() {
	offered := spec.FeatureMAC | spec.FeatureMrgRxBuf | spec.FeatureEventIdx | spec.FeatureVersion1
	r, err := spec.ParseRestriction("-event_idx")
	fmt.Println(r.Apply(offered), err)
	_, err = spec.ParseRestriction("-eventidx")
	fmt.Println(err != nil)
	// Output:
	// mac,mrg_rxbuf,version_1 <nil>
	// true
}
