package testjson

import (
	"bytes"
	"strings"
	"testing"
)

// Streams as `go test -json` writes them, shortened.
const (
	passing = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"pass","Package":"p","Elapsed":0.01}
`
	skipping = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestS"}
{"Action":"skip","Package":"p","Test":"TestS","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":0.01}
`
	subtests = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestT"}
{"Action":"run","Package":"p","Test":"TestT/a"}
{"Action":"run","Package":"p","Test":"TestT/b"}
{"Action":"output","Package":"p","Test":"TestT/b","Output":"the reason of b\n"}
{"Action":"run","Package":"p","Test":"TestT/c"}
{"Action":"pass","Package":"p","Test":"TestT/a","Elapsed":0}
{"Action":"fail","Package":"p","Test":"TestT/b","Elapsed":0}
{"Action":"skip","Package":"p","Test":"TestT/c","Elapsed":0}
{"Action":"fail","Package":"p","Test":"TestT","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":0.01}
`
	notBuilding = `{"ImportPath":"p [p.test]","Action":"build-output","Output":"p/x.go:3: undefined: y\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p [p.test]"}
`
	panicking = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestP"}
{"Action":"output","Package":"p","Test":"TestP","Output":"panic: oh\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.01s\n"}
{"Action":"fail","Package":"p","Elapsed":0.01}
`
	exiting = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestP"}
{"Action":"pass","Package":"p","Elapsed":0.01}
`
	parentFailsAlone = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestT"}
{"Action":"run","Package":"p","Test":"TestT/a"}
{"Action":"pass","Package":"p","Test":"TestT/a","Elapsed":0}
{"Action":"fail","Package":"p","Test":"TestT","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":0.01}
`
	mainFails = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Output":"leak found at exit\n"}
{"Action":"fail","Package":"p","Elapsed":0.01}
`
	failsThenPasses = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":0.01}
`
	noTestFiles = `{"Action":"start","Package":"q"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q","Elapsed":0}
`
)

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name, stream, skips string
		complete            bool
		want                Counts
		complaint, printed  string // each must be found, when not empty
	}{
		{"all well", passing, "", true, Counts{1, 0, 0}, "", "ok   p"},
		{"packages without tests are no skips", noTestFiles + passing, "", true, Counts{1, 0, 0}, "", ""},
		{"an unlisted skip fails", skipping, "", false, Counts{1, 1, 0}, "p TestS was skipped and is not on the list", ""},
		{"a listed skip is counted", skipping, "p TestS needs a moon", true, Counts{1, 0, 1}, "", ""},
		{"the list is by package", skipping, "q TestS needs a moon", false, Counts{1, 1, 0}, "p TestS was skipped", ""},
		{"a listed test that ran fails", skipping, "p TestS x\np TestA x", false, Counts{1, 1, 1}, "p TestA is on the list of skips and ran", ""},
		{"a listed test that is gone fails the whole run", passing, "p TestGone x", true, Counts{1, 1, 0}, "p TestGone is on the list of skips and does not exist", ""},
		{"a partial run does not miss a listed test", passing, "p TestGone x", false, Counts{1, 0, 0}, "", ""},
		{"a listed test of another run is not missed", passing, "p TestElsewhere x", true, Counts{1, 0, 0}, "", ""},
		{"subtests are judged one by one", subtests, "", false, Counts{1, 2, 0}, "p TestT/c was skipped", "the reason of b"},
		{"a package that does not build", notBuilding, "", false, Counts{0, 1, 0}, "p does not build", "undefined: y"},
		{"a panic fails the test that was running", panicking, "", false, Counts{1, 1, 0}, "p TestP failed", "panic: oh"},
		{"a test that never ends fails, whatever the package says", exiting, "", false, Counts{0, 1, 0}, "p TestP failed", "never ended"},
		{"a parent may fail alone", parentFailsAlone, "", false, Counts{1, 1, 0}, "p TestT failed", ""},
		{"a package may fail outside its tests", mainFails, "", false, Counts{1, 1, 0}, "p failed outside every test", "leak found at exit"},
		{"failed once is failed", failsThenPasses, "", false, Counts{0, 1, 0}, "p TestA failed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			skips, err := ReadSkips(strings.NewReader(c.skips))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			r := NewReport(&out)
			if err := r.Read(strings.NewReader(c.stream)); err != nil {
				t.Fatal(err)
			}
			var covers func(string) bool
			if c.complete {
				covers = func(test string) bool { return test != "TestElsewhere" }
			}
			v := r.Verdict(skips, covers)
			if v.Counts != c.want {
				t.Errorf("got %v, want %v", v.Counts, c.want)
			}
			all := strings.Join(v.Complaints, "\n")
			if !strings.Contains(all, c.complaint) || (c.want.Failed == 0) != (all == "") {
				t.Errorf("complaints:\n%s\nwant one with %q", all, c.complaint)
			}
			if !strings.Contains(out.String(), c.printed) {
				t.Errorf("printed:\n%s\nwant %q in it", out.String(), c.printed)
			}
		})
	}
}

func TestTextBetweenEventsIsPassedOn(t *testing.T) {
	var out bytes.Buffer
	if err := NewReport(&out).Read(strings.NewReader("go: warning: nothing matched\n" + passing)); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "go: warning: nothing matched\n") {
		t.Errorf("printed %q", out.String())
	}
}

func TestSkipListIsRead(t *testing.T) {
	s, err := ReadSkips(strings.NewReader("# why\n\np TestA  two words \np TestT/sub_case x\n"))
	if err != nil || len(s) != 2 || s[Key{"p", "TestA"}] != "two words" {
		t.Errorf("got %v, %v", s, err)
	}
	for _, bad := range []string{"p TestA", "p", "p TestA x\np TestA y"} {
		if _, err := ReadSkips(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
