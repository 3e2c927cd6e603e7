package debian

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// several is an apt-get that downloads all the packages it is asked for.
const several = `echo "apt-get $*" >> "$LOG"
for name; do case "$name" in
-*|download|update|APT::*) ;;
absent) echo "E: Unable to locate package absent" >&2; exit 100;;
*) echo "whole $name" > "${name}_1.deb";;
esac; done`

func TestSeveralPackagesAreFetchedTogether(t *testing.T) {
	c, log := machine(t, all...)
	if err := os.WriteFile(filepath.Join(os.Getenv("PATH"), "apt-get"), []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+several), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		dirs, err := c.Packages(t.Context(), "tool", "library", "other")
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range []string{"tool", "library", "other"} {
			if b, err := os.ReadFile(filepath.Join(dirs[i], "bin/program")); err != nil || string(b) != "whole "+n+"\n" {
				t.Errorf("%s unpacked: %q, %v", n, b, err)
			}
		}
	}
	if n := strings.Count(log(), "apt-get"); n != 1 {
		t.Errorf("apt-get was run %d times:\n%s", n, log())
	}
	if _, err := c.Packages(t.Context(), "tool", "absent", "new"); err == nil || !strings.Contains(err.Error(), "the Debian package absent") {
		t.Errorf("a package that does not exist: %v", err)
	}
	if left := leftovers(t, c); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
