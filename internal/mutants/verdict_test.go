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
		want   verdict
		why    string
	}{
		{"fails", mutant{}, killed, ""},
		{"fails", mutant{says: "P1:"}, killed, ""},
		{"fails", mutant{says: "P2:"}, astray, `failed without saying "P2:"`},
		{"fails", mutant{hangs: true}, killed, ""},
		{"subtest-fails", mutant{}, killed, ""},
		{"subtest-fails", mutant{test: "TestHalf/sub", says: "seed 7"}, killed, ""},
		{"subtest-fails", mutant{test: "TestHalf/another"}, broken, "did not run"},
		{"passes", mutant{}, survived, "TestHalf passed"},
		{"passes", mutant{hangs: true}, survived, ""},
		{"hangs", mutant{}, astray, "panic: test timed out after 1s"},
		{"hangs", mutant{hangs: true}, killed, ""},
		{"panics", mutant{}, astray, "panic: here"},
		{"panics", mutant{hangs: true}, astray, "panic: here"},
		{"panics-elsewhere", mutant{}, astray, "panic: there"},
		{"exits", mutant{}, astray, "did not end"},
		{"another-fails", mutant{}, astray, "TestHalf passed, and something else failed"},
		{"another-panics", mutant{}, astray, "TestHalf passed, and something else failed"},
		{"skips", mutant{}, broken, "skipped"},
		{"no-such-test", mutant{}, broken, "no tests to run"},
		{"no-such-flag", mutant{}, broken, "flag provided but not defined: -nope"},
		{"does-not-compile", mutant{}, broken, "undefined: m"},
		{"no-overlay", mutant{}, broken, "reading overlay"},
	} {
		m := row.mutant
		if m.test == "" {
			m.test = "TestHalf"
		}
		got, why := judge(&m, read(recorded(t, row.output)))
		assert.Equal(t, row.want, got, "%s: %+v", row.output, row.mutant)
		if row.why == "" && got == killed {
			assert.Empty(t, why)
		}
		assert.Contains(t, why, row.why)
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
		got := controlled([]string{"TestHalf"}, read(recorded(t, output)))
		if want == "" {
			assert.Empty(t, got)
		}
		assert.Contains(t, got, want)
	}
	assert.Contains(t, controlled([]string{"TestHalf", "TestOther"}, read(recorded(t, "passes"))), "TestOther")
}

func TestTheSeedIsFound(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "42", seedOf(read(recorded(t, "fails")).output("TestHalf")))
	assert.Empty(t, seedOf(read(recorded(t, "another-fails")).output("TestHalf")))
	assert.Empty(t, seedOf("reseed 1, seeds 2"))
}
