package guest

import (
	"context"
	"debug/elf"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPatternMatchesOneTestAndWhatWasAskedForBelow(t *testing.T) {
	old := flag.Lookup("test.run").Value.String()
	defer flag.Set("test.run", old)
	for _, c := range []struct{ asked, name, want string }{
		{"", "TestA", "^TestA$"},
		{"TestA", "TestA", "^TestA$"},
		{"A/b.*/c", "TestA", "^TestA$/b.*/c"},
		{"A/b/c", "TestA/b", "^TestA$/^b$/c"},
		{"", "TestA/a+b", `^TestA$/^a\+b$`},
	} {
		if err := flag.Set("test.run", c.asked); err != nil {
			t.Fatal(err)
		}
		if got := pattern(c.name); got != c.want {
			t.Errorf("-run %q, %s: got %s, want %s", c.asked, c.name, got, c.want)
		}
	}
}

func TestWhatGoesIntoAGuest(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("BAREWIRE_FULL", "1")
	t.Setenv("OTHER", "1")
	m := Machine{Files: map[string]string{"/bin/x": "x"}}
	s := m.spec("TestA", "binary", nil)
	if s.Files[binaryFile] != "binary" || s.Files["/bin/x"] != "x" || len(s.Files) != 2 || len(m.Files) != 1 {
		t.Errorf("files: %v, and the machine's: %v", s.Files, m.Files)
	}
	if !slices.Contains(s.Env, "BAREWIRE_FULL=1") || !slices.Contains(s.Env, insideVariable+"=TestA") || slices.Contains(s.Env, "OTHER=1") {
		t.Errorf("environment: %q", s.Env)
	}
	if !slices.Contains(s.Command, "-test.timeout=2m0s") || s.Limit <= defaultTimeout {
		t.Errorf("command %q, limit %v", s.Command, s.Limit)
	}
	if err := os.Mkdir("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if s := m.spec("TestA", "binary", nil); s.Files["/test/testdata"] != "testdata" {
		t.Errorf("testdata is not in %v", s.Files)
	}
}

// TestBinaryForAGuestNeedsNoLibrary builds this package's tests if they need one as they are, which -race and cgo make them do.
func TestBinaryForAGuestNeedsNoLibrary(t *testing.T) {
	name, err := testBinary(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libs, err := f.ImportedLibraries(); len(libs) > 0 {
		t.Errorf("it needs %v (%v)", libs, err)
	}
	if static(filepath.Join(t.TempDir(), "absent")) {
		t.Error("a file that does not exist is static")
	}
}

func TestOutsideAGuest(t *testing.T) {
	if Inside() {
		t.Fatal("this is no guest")
	}
	for name, err := range map[string]error{
		"Ask": func() error { _, err := Ask(context.Background(), "x"); return err }(), "LoadModule": LoadModule("x"), "UnloadModule": UnloadModule("x"),
		"Bind": Bind("0000:00:03.0", "x"), "BindVFIO": BindVFIO("0000:00:03.0"), "Restart": Restart(),
	} {
		if !errors.Is(err, errOutside) || !strings.Contains(err.Error(), "guest.Inside") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Start() != 1 {
		t.Errorf("start %d", Start())
	}
}
