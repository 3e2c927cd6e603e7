package gotest

import (
	"strings"
	"testing"
)

// show writes a tree as text, to be compared.
func show(tests []*Test, indent string) string {
	var b strings.Builder
	for _, t := range tests {
		b.WriteString(indent + t.Name + " " + string(t.Verdict) + " " + t.Took + " " + strings.ReplaceAll(t.Output, "\n", "|") + "\n")
		b.WriteString(show(t.Subtests, indent+"  "))
	}
	return b.String()
}

func TestResults(t *testing.T) {
	for _, c := range []struct{ name, in, want, loose string }{
		{"passes and fails", "^=== RUN   TestA\n    a_test.go:1: hello\n^--- FAIL: TestA (0.01s)\n^=== RUN   TestB\n^--- PASS: TestB (0.00s)\n^FAIL\n",
			"TestA FAIL 0.01s     a_test.go:1: hello|\nTestB PASS 0.00s \n", "FAIL\n"},
		{"subtests", "^=== RUN   TestA\n^=== RUN   TestA/b\n^=== RUN   TestA/b/c\ndeep\n    ^--- PASS: TestA/b/c (0.00s)\n  ^--- SKIP: TestA/b (0.00s)\n^=== NAME  TestA\nup\n^--- PASS: TestA (0.00s)\n",
			"TestA PASS 0.00s up|\n  TestA/b SKIP 0.00s \n    TestA/b/c PASS 0.00s deep|\n", ""},
		{"a subtest with a slash in its own name", "^=== RUN   TestA\n^=== RUN   TestA/b/c\n^--- PASS: TestA/b/c (0.00s)\n^--- PASS: TestA (0.00s)\n",
			"TestA PASS 0.00s \n  TestA/b/c PASS 0.00s \n", ""},
		{"in parallel", "^=== RUN   TestA/1\n^=== PAUSE TestA/1\n^=== RUN   TestA/2\n^=== PAUSE TestA/2\n^=== CONT  TestA/1\none\n^=== CONT  TestA/2\ntwo\n^=== NAME  TestA/1\nmore\n^--- PASS: TestA/1 (0.00s)\n^--- FAIL: TestA/2 (0.00s)\n",
			"TestA/1 PASS 0.00s one|more|\nTestA/2 FAIL 0.00s two|\n", ""},
		{"output that looks like a result", "^=== RUN   TestA\n--- FAIL: TestA (0.00s)\nPASS\n^--- PASS: TestA (0.00s)\n",
			"TestA PASS 0.00s --- FAIL: TestA (0.00s)|PASS|\n", ""},
		{"output without a newline", "^=== RUN   TestA\nno end^--- PASS: TestA (0.00s)\n", "TestA PASS 0.00s no end|\n", ""},
		{"killed", "before\n^=== RUN   TestA\npanic: x\n", "TestA   panic: x|\n", "before\n"},
		{"attributes are not output", "^=== RUN   TestA\n^=== ATTR  TestA key value\n^--- PASS: TestA (0.00s)\n", "TestA PASS 0.00s \n", ""},
		{"the last line has no end", "^=== RUN   TestA\nhalf", "TestA   half\n", ""},
	} {
		in := strings.ReplaceAll(c.in, "^", syn)
		for _, step := range []int{1, 3, len(in)} {
			var p Parser
			for rest := in; rest != ""; {
				n := min(step, len(rest))
				if _, err := p.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			tests, loose := p.Tests()
			if got := show(tests, ""); got != c.want || loose != c.loose {
				t.Errorf("%s, in pieces of %d bytes: got\n%s%q\nwant\n%s%q", c.name, step, got, loose, c.want, c.loose)
			}
		}
	}
}

func FuzzParser(f *testing.F) {
	f.Add([]byte(syn+"=== RUN   TestA\nx\n"+syn+"--- PASS: TestA (0.00s)\n"), 3)
	f.Add([]byte(syn+"=== RUN   a/\n"+syn+"=== RUN   /\n"+syn+"=== NAME  \n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, parts Parser
		whole.Write(b)
		n := 0
		if len(b) > 0 {
			n = int(uint(cut) % uint(len(b)))
		}
		parts.Write(b[:n])
		parts.Write(b[n:])
		one, loose1 := whole.Tests()
		two, loose2 := parts.Tests()
		if show(one, "") != show(two, "") || loose1 != loose2 {
			t.Errorf("cut at %d: the results differ:\n%s\n%s", n, show(one, ""), show(two, ""))
		}
	})
}

// TestMuchOutputOfOneTest takes what would take hours if each line copied those before it.
func TestMuchOutputOfOneTest(t *testing.T) {
	const lines = 200_000
	line := []byte(strings.Repeat("x", 99) + "\n")
	var p Parser
	p.Write([]byte(syn + "=== RUN   TestA\n"))
	for range lines {
		p.Write(line)
	}
	top, _ := p.Tests()
	if len(top) != 1 || len(top[0].Output) != lines*len(line) {
		t.Errorf("%d tests", len(top))
	}
}
