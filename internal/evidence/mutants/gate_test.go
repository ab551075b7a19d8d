package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is a small module. Each of its mutants has one hunk.
var tree = map[string]string{
	"go.mod": "module example.org/half\n\ngo 1.25\n",
	"half.go": `package half

func half(n int) int {
	if n < 0 {
		return 0
	}
	return n / 2
}

type pair[T any] struct{ a, b T }

func (p *pair[T]) sum(all ...int) (sum int, of T) {
	for _, n := range all {
		sum += n
	}
	return sum, p.a
}

func nameless(int) int { return 1 }

const one = 1
`,
	"half_unix.go": "package half\n\nfunc system() string { return `a` }\n",
	"half_else.go": "//go:build !unix\n\npackage half\n\nfunc system() string { return `b` }\n",
	"lua/half.lua": "return 1",
	"half_test.go": `package half

import "testing"

func TestHalf(t *testing.T) {
	if system() == "panic" {
		panic("here")
	}
	if half(5) != 2 {
		t.Fatal("P1: not half")
	}
}

func TestOthers(t *testing.T) {
	t.Run("sum", func(t *testing.T) {
		if sum, of := (&pair[int]{1, 2}).sum(1, 2); sum != 3 || of != 1 {
			t.Fatal("not the sum")
		}
	})
	if nameless(0) != one {
		t.Fatal("not one")
	}
}

func TestFails(t *testing.T) { t.Fatal("as it is") }
`,
}

func gateOf(t *testing.T) gate {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the go command")
	}
	g := gate{t.TempDir(), t.TempDir()}
	for name, text := range tree {
		file := filepath.Join(g.root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return g
}

// read makes a mutant from the killing test, the text of its failure, and a hunk.
func read(t *testing.T, name, killer, says, hunk string) mutant {
	t.Helper()
	m, err := parse(name, "guard: g\nwithout: w\nkilled by: . "+killer+"\nsays: "+says+"\n\n--- "+hunk+"\n")
	require.NoError(t, err)
	return m
}

// TestSurvivorsAreFound: each survivor has its reason. Functions are woven, other mutants are built
// separately, and the tree is not changed.
func TestSurvivorsAreFound(t *testing.T) {
	t.Parallel()
	g := gateOf(t)
	var all []mutant
	want := map[string]string{}
	for _, row := range []struct{ name, killer, says, hunk, why string }{
		{"killed", "TestHalf", "P1:", ". half\n@@\n-return n / 2\n+return n", ""},
		{"other-words", "TestHalf", "P2:", ". half\n@@\n-return n / 2\n+return n", `does not say "P2:"`},
		{"passes", "TestHalf", "", ". half\n@@\n-if n < 0 {\n+if n < -1 {\n return 0", "does not fail by itself"},
		{"panics", "TestHalf", "", ". system\n@@\n-func system() string { return `a` }\n+func system() string { return `panic` }", "does not fail by itself"},
		{"hangs", "TestHalf", "panic: here", ". system\n@@\n-func system() string { return `a` }\n+func system() string { return `panic` }", ""},
		{"method", "TestOthers/sum", "not the sum", ". (*pair).sum\n@@\n sum += n\n+sum++", ""},
		{"apart-nameless", "TestOthers", "not one", ". nameless\n@@\n-func nameless(int) int { return 1 }\n+func nameless(int) int { return 2 }", ""},
		{"apart-parent-alone-fails", "TestOthers/sum", "", ". nameless\n@@\n-func nameless(int) int { return 1 }\n+func nameless(int) int { return 2 }", "does not fail by itself"},
		{"apart-constant", "TestOthers", "not one", ". one\n@@\n-const one = 1\n+const one = 2", ""},
		{"apart-signature", "TestHalf", "P1:", ". half\n@@\n-func half(n int) int {\n+func half(n int, _ ...int) int {\n+n++\n+n++", ""},
		{"apart-script", "TestHalf", "", "lua/half.lua\n@@\n-return 1\n+return 2", "does not fail by itself"},
	} {
		all = append(all, read(t, row.name, row.killer, row.says, row.hunk))
		want[row.name] = row.why
	}
	_, apart, err := weave(source{os.DirFS(g.root), map[string][]*place{}}, all)
	require.NoError(t, err)
	var mu sync.Mutex
	require.NoError(t, g.run(t.Context(), all, func(r result) {
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, want[r.name] == "", r.why == "", "%s: %s", r.name, r.why)
		assert.Contains(t, r.why, want[r.name])
		assert.Equal(t, strings.HasPrefix(r.name, "apart"), apart[r.name] != nil, r.name)
		delete(want, r.name)
	}))
	assert.Empty(t, want)
	for name, text := range tree {
		is, err := os.ReadFile(filepath.Join(g.root, name))
		require.NoError(t, err)
		assert.Equal(t, text, string(is))
	}
}

// TestGateEndsAtAnUntestableMutant: the test fails without the mutant, or the code does not
// compile.
func TestGateEndsAtAnUntestableMutant(t *testing.T) {
	t.Parallel()
	g := gateOf(t)
	for want, m := range map[string]mutant{
		"without any mutant TestFails of . does not pass": read(t, "m", "TestFails", "", ". half\n@@\n-return n / 2\n+return n"),
		"without any mutant TestGone of . does not pass":  read(t, "m", "TestGone", "", ". half\n@@\n-return n / 2\n+return n"),
		"m.diff:5: undefined: m":                          read(t, "m", "TestHalf", "", ". half\n@@\n-return n / 2\n+return m"),
	} {
		assert.ErrorContains(t, g.run(t.Context(), []mutant{m}, nil), want)
	}
}

func TestMutantMustApplyOnce(t *testing.T) {
	t.Parallel()
	for hunk, want := range map[string]string{
		". half\n@@\n-return n / 3\n+return n":                               "mutant m: . half: 0 places match, and there must be one:\nreturn n / 3",
		". half\n@@\n-return n / 2\n+return n\n@@\n-return n / 2\n+return 0": "0 places match", // the first hunk has replaced this line
		". half\n@@\n }\n+n++":                                               "2 places match",
		". TestHalf\n@@\n-panic(\"here\")":                                   "0 places match",
		"gone half\n@@\n-x":                                                  "0 places match",
		"lua/gone.lua\n@@\n-x":                                               "lua/gone.lua",
	} {
		m := read(t, "m", "TestHalf", "", hunk)
		_, err := m.apply(source{os.DirFS(gateOf(t).root), map[string][]*place{}})
		assert.ErrorContains(t, err, want)
	}
}

func TestUnreadableMutantIsAnError(t *testing.T) {
	t.Parallel()
	const whole = "guard: g\nwithout: w\nkilled by: . TestHalf -mode=fail -n=2\n\n--- . half\n@@\n-x\n+y\n"
	m, err := parse("m", whole)
	require.NoError(t, err)
	assert.Equal(t, mutant{name: "m", guard: "g", without: "w", pkg: ".", test: "TestHalf", flags: []string{"-mode=fail", "-n=2"},
		hunks: []hunk{{". half", []string{"x"}, []string{"y"}}}}, m)
	for _, row := range [][3]string{
		{"guard:", "quard:", `unknown field "quard"`},
		{"guard: g", "", "specify guard"},
		{". TestHalf -mode=fail -n=2", "TestHalf", "with a package and a test"},
		{"-x\n+y\n", " x\n", "changes nothing"},
		{"-x\n", "", "changes nothing"},
		{"+y", "y", "begins with neither"},
		{"--- . half\n@@\n-x\n+y\n", "", "changes nothing"},
	} {
		require.Contains(t, whole, row[0])
		_, err := parse("m", strings.Replace(whole, row[0], row[1], 1))
		assert.ErrorContains(t, err, row[2])
	}
}
