package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// said has what go test -v said of a small package with TestHalf, and in some cases TestOther,
// without times and goroutine dumps.
var said = map[string]string{
	"another-fails": `=== RUN   TestHalf
--- PASS: TestHalf (0.00s)
=== RUN   TestOther
    half_test.go:36: seed 1
--- FAIL: TestOther (0.00s)
FAIL
FAIL	example.org/half	0.002s
`,
	"does-not-compile": `# example.org/half [example.org/half.test]
./half.go:3:31: undefined: m
FAIL	example.org/half [build failed]
`,
	"fails": `=== RUN   TestHalf
    half_test.go:15: seed 42:
        P1: wrong
--- FAIL: TestHalf (0.00s)
FAIL
FAIL	example.org/half	0.002s
`,
	"hangs": `=== RUN   TestHalf
panic: test timed out after 1s
	running tests:
		TestHalf (1s)
example.org/half.TestHalf(0xb9761c1e488?)
FAIL	example.org/half	1.004s
`,
	"no-such-test": `testing: warning: no tests to run
PASS
ok  	example.org/half	0.002s [no tests to run]
`,
	"panics": `=== RUN   TestHalf
--- FAIL: TestHalf (0.00s)
panic: here [recovered, repanicked]
example.org/half.TestHalf(0x4fd12f06c8?)
FAIL	example.org/half	0.004s
`,
	"passes": `=== RUN   TestHalf
--- PASS: TestHalf (0.00s)
PASS
ok  	example.org/half	0.002s
`,
	"skips": `=== RUN   TestHalf
    half_test.go:26: no
--- SKIP: TestHalf (0.00s)
PASS
ok  	example.org/half	0.002s
`,
	"subtest-fails": `=== RUN   TestHalf
=== RUN   TestHalf/sub
    half_test.go:30: seed 7
--- FAIL: TestHalf (0.00s)
    --- FAIL: TestHalf/sub (0.00s)
FAIL
FAIL	example.org/half	0.002s
`,
}

// TestOnlyTheNamedTestsFailureKills.
func TestOnlyTheNamedTestsFailureKills(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		output string
		mutant mutant
		want   string // why it survived; "" if it was killed
	}{
		{"fails", mutant{}, ""},
		{"fails", mutant{says: "P1:"}, ""},
		{"fails", mutant{says: "P2:"}, `failed without saying "P2:"`},
		{"fails", mutant{hangs: true}, ""},
		{"subtest-fails", mutant{}, ""},
		{"subtest-fails", mutant{test: "TestHalf/sub", says: "seed 7"}, ""},
		{"subtest-fails", mutant{test: "TestHalf/another"}, "did not run"},
		{"passes", mutant{}, "TestHalf ended with PASS"},
		{"passes", mutant{hangs: true}, "TestHalf ended with PASS"},
		{"hangs", mutant{}, "panic: test timed out after 1s"},
		{"hangs", mutant{hangs: true}, ""},
		{"panics", mutant{}, "panic: here"},
		{"panics", mutant{hangs: true}, "panic: here"},
		{"another-fails", mutant{}, "TestHalf ended with PASS"},
		{"skips", mutant{}, "TestHalf ended with SKIP"},
		{"no-such-test", mutant{}, "no tests to run"},
		{"does-not-compile", mutant{}, "undefined: m"},
	} {
		m := row.mutant
		if m.test == "" {
			m.test = "TestHalf"
		}
		got := judge(&m, said[row.output])
		if row.want == "" {
			assert.Empty(t, got, "%s: %+v", row.output, row.mutant)
		}
		assert.Contains(t, got, row.want)
	}
}

// TestTheControlMustPass: a test that fails anyway shows nothing.
func TestTheControlMustPass(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"passes":           "",
		"fails":            "P1: wrong",
		"skips":            "SKIP",
		"no-such-test":     "did not pass",
		"does-not-compile": "undefined: m",
		"another-fails":    "seed 1",
	} {
		got := controlled([]string{"TestHalf"}, said[output])
		if want == "" {
			assert.Empty(t, got)
		}
		assert.Contains(t, got, want)
	}
	assert.Contains(t, controlled([]string{"TestHalf", "TestOther"}, said["passes"]), "TestOther")
}
