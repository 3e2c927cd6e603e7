//go:build guest

// Package meta holds tests that are run by the tests of package guest, to see how what happens in a guest is reported.
package meta

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"bare.wire/test/guest"
)

func TestMixed(t *testing.T) {
	guest.Run(t, guest.Machine{Out: os.Getenv("META_OUT")}, func(t *testing.T) {
		t.Log("said before")
		t.Run("passes", func(t *testing.T) { t.Log("all is well") })
		t.Run("fails", func(t *testing.T) {
			t.Error("this is wrong")
			t.Run("below", func(t *testing.T) { t.Fatal("and this") })
		})
		t.Run("is skipped", func(t *testing.T) { t.Skip("not today") })
		t.Run("prints", func(t *testing.T) { fmt.Print("printed without a newline") })
		t.Run("prints to stderr/with a slash", func(t *testing.T) { fmt.Fprintln(os.Stderr, "--- FAIL: TestMixed/passes (0.00s)") })
		t.Run("parallel", func(t *testing.T) {
			for i := range 3 {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					t.Logf("this is number %d", i)
				})
			}
		})
		if err := os.WriteFile(guest.OutDir+"/left.txt", []byte("for the host"), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	if !guest.Inside() {
		guest.Run(t, guest.Machine{}, func(*testing.T) {}) // the second in this test
	}
}

func TestAllSkipped(t *testing.T) {
	guest.Run(t, guest.Machine{}, func(t *testing.T) {
		if _, err := guest.Ask(t.Context(), "hello?"); err == nil || !strings.Contains(err.Error(), "Machine.Answer") {
			t.Errorf("nobody answers, and the error is %v", err)
		}
		t.Skip("nothing here")
	})
}

func TestHangs(t *testing.T) {
	guest.Run(t, guest.Machine{Timeout: 2 * time.Second}, func(t *testing.T) {
		t.Run("is done", func(*testing.T) {})
		t.Run("waits for ever", func(*testing.T) { waitForEver() })
	})
}

func waitForEver() { select {} }

// TestIsInterrupted is run alone: somebody stops it in the middle.
func TestIsInterrupted(t *testing.T) {
	if os.Getenv("META_INTERRUPTED") == "" && !guest.Inside() {
		return
	}
	m := guest.Machine{ShareRAM: true}
	if !guest.Inside() {
		m.Wrap = []string{guest.Nicsim(t), "qemu", "--"}
	}
	guest.Run(t, m, func(t *testing.T) {
		fmt.Println("waits to be stopped")
		time.Sleep(time.Minute)
	})
}

func TestDies(t *testing.T) {
	guest.Run(t, guest.Machine{}, func(t *testing.T) {
		t.Run("panics", func(*testing.T) { panic("on purpose") })
	})
}

func TestLeaves(t *testing.T) {
	guest.Run(t, guest.Machine{}, func(t *testing.T) {
		t.Run("exits", func(*testing.T) { os.Exit(0) })
	})
}

func TestKernelPanics(t *testing.T) {
	guest.Run(t, guest.Machine{}, func(t *testing.T) {
		t.Run("before", func(*testing.T) {})
		t.Run("crashes the kernel", func(t *testing.T) {
			fmt.Println("about to crash")
			time.Sleep(100 * time.Millisecond) // the line is on its way through init
			if err := os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func TestNoSuchDevice(t *testing.T) {
	guest.Run(t, guest.Machine{QEMU: []string{"-device", "no-such-device"}}, func(t *testing.T) {})
}

func TestNoSuchModule(t *testing.T) {
	guest.Run(t, guest.Machine{Modules: []string{"no-such-module"}}, func(t *testing.T) {})
}

func TestWrapperFails(t *testing.T) {
	guest.Run(t, guest.Machine{Wrap: []string{"sh", "-c", `"$@"; echo the wrapper is not content; exit 7`, "sh"}}, func(t *testing.T) {})
}

func TestRestarts(t *testing.T) {
	m := guest.Machine{Restarts: 1, Answer: func(q string) string {
		if q == "slow" {
			<-time.After(time.Second)
		}
		return strings.ToUpper(q)
	}}
	guest.Run(t, m, func(t *testing.T) {
		t.Run(fmt.Sprintf("start %d", guest.Start()), func(t *testing.T) {
			if a, err := guest.Ask(t.Context(), "still there?"); err != nil || a != "STILL THERE?" {
				t.Errorf("the answer is %q, %v", a, err)
			}
		})
		if guest.Start() == 1 {
			t.Error(guest.Restart())
		}
		t.Run("an answer too late", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if a, err := guest.Ask(ctx, "slow"); err == nil {
				t.Errorf("the answer came: %q", a)
			}
			if a, err := guest.Ask(t.Context(), "quick"); err != nil || a != "QUICK" {
				t.Errorf("the answer is %q, %v", a, err)
			}
		})
	})
}
