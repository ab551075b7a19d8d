package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// halved is a mutant of the code that the recorded outputs are of.
const halved = `guard: half is rounded down
without: it is rounded up
killed by: . TestHalf -mode=fail -n=2
says: P1:

--- half.go
@@
 package half
 
-func half(n int) int { return n / 2 }
+func half(n int) int { return n - n/2 }
@@
-// one
+// two
--- folder/other.go
@@
+// new
 var x int
`

func TestAMutantIsRead(t *testing.T) {
	t.Parallel()
	m, err := parse("halved", halved)
	require.NoError(t, err)
	assert.Equal(t, mutant{
		name: "halved", guard: "half is rounded down", without: "it is rounded up",
		pkg: ".", test: "TestHalf", flags: []string{"-mode=fail", "-n=2"}, says: "P1:",
		hunks: []hunk{
			{"half.go", []line{
				{' ', "package half"}, {' ', ""},
				{'-', "func half(n int) int { return n / 2 }"}, {'+', "func half(n int) int { return n - n/2 }"},
			}},
			{"half.go", []line{{'-', "// one"}, {'+', "// two"}}},
			{"folder/other.go", []line{{'+', "// new"}, {' ', "var x int"}}},
		},
	}, m)
}

func TestAMutantThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ from, to, want string }{
		{"guard:", "quard:", `line "quard: half is rounded down": unknown`},
		{"guard: half is rounded down", "", "no guard"},
		{"without: it is rounded up", "", "no without"},
		{"killed by: . TestHalf -mode=fail -n=2", "", "no killed by"},
		{"killed by: . TestHalf", "killed by: TestHalf", "is not a package and a test"},
		{"says: P1:", "hangs: no", `hangs: "no", may be yes`},
		{"+// new\n", "", "changes nothing"},
		{"+// new\n", "new\n", "begins with neither"},
		{"folder/other.go", "folder/other_test.go", "cannot be changed"},
		{"folder/other.go", "/folder/other.go", "cannot be changed"},
		{"folder/other.go", "Makefile", "cannot be changed"},
	} {
		require.Contains(t, halved, row.from)
		_, err := parse("halved", strings.Replace(halved, row.from, row.to, 1))
		assert.ErrorContains(t, err, "mutant halved: ")
		assert.ErrorContains(t, err, row.want)
	}
	head, _, _ := strings.Cut(halved, "\n---")
	_, err := parse("halved", head)
	assert.ErrorContains(t, err, "no change")
}

func TestAllThatIsWrongWithTheListIsSaid(t *testing.T) {
	t.Parallel()
	_, err := load(fstest.MapFS{
		"a.diff": {Data: []byte(halved)},
		"b.diff": {Data: []byte("nonsense")},
		"c.diff": {Data: []byte("guard: x")},
	})
	assert.NotContains(t, err.Error(), "mutant a")
	assert.ErrorContains(t, err, "mutant b")
	assert.ErrorContains(t, err, "mutant c")
}
