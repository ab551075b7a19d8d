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

const code = `package half

func half(n int) int {
	if n < 0 {
		return 0
	}
	return n / 2
}

func other() int {
	return 0
}
`

// mutate applies a diff to code.
func mutate(t *testing.T, hunks string) (string, error) {
	t.Helper()
	m, err := parse("m", "guard: g\nwithout: w\nkilled by: . TestHalf\n\n--- half.go\n"+hunks)
	require.NoError(t, err)
	changed, err := m.apply(fstest.MapFS{"half.go": {Data: []byte(code)}})
	return changed["half.go"], err
}

func TestAMutantAppliesWhateverTheIndentation(t *testing.T) {
	t.Parallel()
	got, err := mutate(t, "@@\n-if n < 0 {\n-	return 0\n }\n+n++\n return n / 2\n@@\n-func other() int {\n-	return 0\n-}\n")
	require.NoError(t, err)
	assert.Equal(t, "package half\n\nfunc half(n int) int {\n	}\nn++\n	return n / 2\n}\n\n", got)
}

func TestALineMayBeCutShort(t *testing.T) {
	t.Parallel()
	got, err := mutate(t, "@@\n func half(...\n-if n ...\n+if false {\n")
	require.NoError(t, err)
	assert.Contains(t, got, "func half(n int) int {\nif false {\n		return 0\n")
	_, err = mutate(t, "@@\n-func ...\n")
	assert.ErrorContains(t, err, "both match")
}

func TestAMutantThatDoesNotApplyIsAnError(t *testing.T) {
	t.Parallel()
	_, err := mutate(t, "@@\n-return n / 3\n+return n\n")
	assert.EqualError(t, err, "mutant m: half.go: there is no such place any more:\nreturn n / 3")
	_, err = mutate(t, "@@\n-	return n / 2\n-	}\n-	}\n")
	assert.ErrorContains(t, err, "there is no such place any more")
	_, err = mutate(t, "@@\n-return n / 2\n+return n\n@@\n-return n / 2\n+return 0\n")
	assert.ErrorContains(t, err, "there is no such place any more", "the first hunk took it")
	_, err = mutate(t, "@@\n+return n\n")
	assert.ErrorContains(t, err, "nothing to look for")

	m, err := parse("m", "guard: g\nwithout: w\nkilled by: . TestHalf\n\n--- gone.go\n@@\n-x\n")
	require.NoError(t, err)
	_, err = m.apply(fstest.MapFS{})
	assert.ErrorContains(t, err, "gone.go")
}

func TestAMutantThatAppliesTwiceIsAnError(t *testing.T) {
	t.Parallel()
	_, err := mutate(t, "@@\n-return 0\n+return 1\n")
	assert.EqualError(t, err, "mutant m: half.go: lines 5 and 11 both match:\nreturn 0")
	got, err := mutate(t, "@@\n func other() int {\n-return 0\n+return 1\n")
	require.NoError(t, err, "but what is around it can tell")
	assert.Contains(t, got, "func other() int {\nreturn 1\n}")
}
