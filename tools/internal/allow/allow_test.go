package allow

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestListIsReadWithItsReasons(t *testing.T) {
	l, err := Read(strings.NewReader("# why\n\nmbuf/copy.go:Copy  the counted one\nmbuf/chain.go:Chain.Read io.Reader is a copy by contract\n"))
	if err != nil || len(l) != 2 {
		t.Fatalf("got %v, %v", l, err)
	}
	if i := l.Index("mbuf/chain.go", "Chain.Read"); i != 1 || l[i].Reason != "io.Reader is a copy by contract" {
		t.Errorf("entry %d of %v", i, l)
	}
	if l.Index("mbuf/copy.go", "Chain.Read") != -1 {
		t.Error("the function of another file was found")
	}
}

func TestExceptionWithoutReasonIsRefused(t *testing.T) {
	for _, bad := range []string{"mbuf/copy.go:Copy", "mbuf/copy.go reason", ":Copy reason", "mbuf/copy.go: reason"} {
		if l, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read as %v", bad, l)
		}
	}
}

func TestAbsentFileIsAnEmptyList(t *testing.T) {
	if l, err := Load(filepath.Join(t.TempDir(), "none")); l != nil || err != nil {
		t.Errorf("got %v, %v", l, err)
	}
}
