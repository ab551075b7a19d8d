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

--- . half
@@
 // half
 
-func half(n int) int { return n / 2 }
+func half(n int) int { return n - n/2 }
@@
-// one
+// two
--- folder (*other).x
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
			{". half", []line{
				{' ', "// half"}, {' ', ""},
				{'-', "func half(n int) int { return n / 2 }"}, {'+', "func half(n int) int { return n - n/2 }"},
			}},
			{". half", []line{{'-', "// one"}, {'+', "// two"}}},
			{"folder (*other).x", []line{{'+', "// new"}, {' ', "var x int"}}},
		},
	}, m)
}

func TestAMutantThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ from, to, want string }{
		{"guard:", "quard:", `line "quard: half is rounded down": unknown`},
		{"guard: half is rounded down", "", "no guard"},
		{"without: it is rounded up", "", "without it"},
		{"killed by: . TestHalf", "killed by: TestHalf", "is not a package and a test"},
		{"+// new\n", "", "changes nothing"},
		{"+// new\n", "new\n", "begins with neither"},
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

import "errors"

func half(n int) int {
	if n < 0 {
		return 0
	}
	return n / 2
}

func other() int {
	return 0
}

type pair[T any] struct{ a, b T }

func (p pair[T]) other() int {
	return 1
}

func (p *pair[T]) half() (int, T) {
	return 2, p.a
}

const (
	one = 1
	two = 2
)

var none, some = errors.New("none"), 1
`

// mutate applies a diff to code, and to a script.
func mutate(t *testing.T, hunks string) (map[string]string, error) {
	t.Helper()
	m, err := parse("m", "guard: g\nwithout: w\nkilled by: . TestHalf\n\n"+hunks)
	require.NoError(t, err)
	return m.apply(fstest.MapFS{
		"code/half.go":      {Data: []byte(code)},
		"code/on_unix.go":   {Data: []byte("package half\n\nfunc system() string { return `unix` }\n")},
		"code/on_plan9.go":  {Data: []byte("package half\n\nfunc system() string { return `plan9` }\n")},
		"code/half_test.go": {Data: []byte("package half\n\nfunc tested() int { return 1 }\n")},
		"lua/half.lua":      {Data: []byte("local n = 1\nreturn n / 2\n")},
	})
}

// TestAHunkIsAddressedByADeclaration, in whatever file that stands.
func TestAHunkIsAddressedByADeclaration(t *testing.T) {
	t.Parallel()
	for at, row := range map[string]struct{ from, to, want string }{
		"code other":        {"return 0", "return 7", "func other() int {\nreturn 7\n}"},
		"code pair.other":   {"return 1", "return 7", "func (p pair[T]) other() int {\nreturn 7\n}"},
		"code (*pair).half": {"return 2, p.a", "return 7, p.b", "(int, T) {\nreturn 7, p.b\n}"},
		"code pair":         {"type pair[T any] ...", "type pair[T any] struct{ b, a T }", "}\n\ntype pair[T any] struct{ b, a T }\n"},
		"code none":         {"var none, some = ...", "var none, some = errors.New(``), 2", ")\n\nvar none, some = errors.New(``), 2\n"},
		"code system":       {"func system() string { return `plan9` }", "func system() string { return `` }", "half\n\nfunc system() string { return `` }\n"},
		"lua/half.lua":      {"return n / 2", "return n", "local n = 1\nreturn n\n"},
	} {
		changed, err := mutate(t, "--- "+at+"\n@@\n-"+row.from+"\n+"+row.to+"\n")
		if assert.NoError(t, err) && assert.Len(t, changed, 1) {
			for _, text := range changed {
				assert.Contains(t, text, row.want)
			}
		}
	}
}

func TestAMutantAppliesWhateverTheIndentation(t *testing.T) {
	t.Parallel()
	got, err := mutate(t, "--- code half\n@@\n-if n < 0 {\n-	return 0\n-}\n+n++\n return n / 2\n--- code other\n@@\n func ...\n-return 0\n+return 3\n")
	require.NoError(t, err)
	assert.Contains(t, got["code/half.go"], "{\nn++\n	return n / 2\n}\n\nfunc other() int {\nreturn 3\n}\n")
}

func TestAMutantThatDoesNotApplyIsAnError(t *testing.T) {
	t.Parallel()
	for hunks, want := range map[string]string{
		"--- code half\n@@\n-return n / 3\n+return n\n":                               "mutant m: code half: there is no such place any more:\nreturn n / 3",
		"--- code other\n@@\n-return n / 2\n":                                         "there is no such place any more",
		"--- code half\n@@\n-return n / 2\n+return n\n@@\n-return n / 2\n+return 0\n": "there is no such place any more", // the first hunk took it
		"--- code half\n@@\n+return n\n":                                              "nothing to look for",
		"--- code pair.half\n@@\n-x\n":                                                "package code has no pair.half",
		"--- code tested\n@@\n-func tested() int { return 1 }\n":                      "package code has no tested",
		"--- gone half\n@@\n-x\n":                                                     "package gone has no half",
		"--- code/half.go\n@@\n-x\n":                                                  "neither a package with a declaration nor a Lua script",
		"--- lua/gone.lua\n@@\n-x\n":                                                  "lua/gone.lua",
	} {
		_, err := mutate(t, hunks)
		assert.ErrorContains(t, err, want)
	}
}

func TestAMutantThatAppliesTwiceIsAnError(t *testing.T) {
	t.Parallel()
	_, err := mutate(t, "--- code half\n@@\n-}\n")
	assert.EqualError(t, err, "mutant m: code half: code/half.go:8 and code/half.go:10 both match:\n}")
	_, err = mutate(t, "--- code system\n@@\n-func ...\n")
	assert.ErrorContains(t, err, "code/on_plan9.go:3 and code/on_unix.go:3 both match")
	got, err := mutate(t, "--- code half\n@@\n-}\n return n / 2\n")
	require.NoError(t, err, "but what is around it can tell")
	assert.Contains(t, got["code/half.go"], "return 0\n	return n / 2\n")
}
