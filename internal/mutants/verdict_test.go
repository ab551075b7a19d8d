package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded reads what go test -json said of a small package with TestHalf,
// and in some files TestOther. Times and goroutine dumps were taken out.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	stream, err := os.ReadFile("testdata/" + name + ".json")
	require.NoError(t, err)
	return stream
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
		{"passes", mutant{}, "TestHalf passed"},
		{"passes", mutant{hangs: true}, "TestHalf passed"},
		{"hangs", mutant{}, "panic: test timed out after 1s"},
		{"hangs", mutant{hangs: true}, ""},
		{"panics", mutant{}, "panic: here"},
		{"panics", mutant{hangs: true}, "panic: here"},
		{"panics-elsewhere", mutant{}, "panic: there"},
		{"exits", mutant{}, "did not end"},
		{"another-fails", mutant{}, "TestHalf passed, and something else failed"},
		{"another-panics", mutant{}, "TestHalf passed, and something else failed"},
		{"skips", mutant{}, "skipped"},
		{"no-such-test", mutant{}, "no tests to run"},
		{"no-such-flag", mutant{}, "flag provided but not defined: -nope"},
		{"does-not-compile", mutant{}, "undefined: m"},
		{"no-overlay", mutant{}, "reading overlay"},
	} {
		m := row.mutant
		if m.test == "" {
			m.test = "TestHalf"
		}
		got := judge(&m, read(recorded(t, row.output), m.test))
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
		"skips":            "skip",
		"no-such-test":     "did not pass",
		"does-not-compile": "undefined: m",
		"another-fails":    "seed 1",
	} {
		got := controlled([]string{"TestHalf"}, read(recorded(t, output), ""))
		if want == "" {
			assert.Empty(t, got)
		}
		assert.Contains(t, got, want)
	}
	assert.Contains(t, controlled([]string{"TestHalf", "TestOther"}, read(recorded(t, "passes"), "")), "TestOther")
}
