package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// module writes a module to a temporary folder and returns a gate for it.
func module(t *testing.T) *gate {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/half\n\ngo 1.25\n",
		"half.go": code,
		"half_test.go": `package half

import "testing"

func TestHalf(t *testing.T) {
	if half(5) != 2 {
		t.Fatal("seed 42: P1: not half")
	}
}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return &gate{root: dir, jobs: 2, goTest: goTest(dir), report: func(result) {}}
}

// results has the gate report to a map, by the names of mutants.
func results(g *gate) map[string]result {
	all := map[string]result{}
	var mu sync.Mutex
	g.report = func(r result) {
		mu.Lock()
		defer mu.Unlock()
		all[r.mutant.name] = r
	}
	return all
}

// three returns a mutant that TestHalf kills, one that it does not, and one
// that does not compile.
func three(t *testing.T) []mutant {
	t.Helper()
	var all []mutant
	for _, change := range []string{"-	return n / 2\n+	return n\n", "-	if n < 0 {\n+	if n < -1 {\n", "-	return n / 2\n"} {
		m, err := parse("mutant"+string(rune('1'+len(all))), "guard: a|b\nwithout: x\nkilled by: . TestHalf\nsays: P1:\n\n--- . half\n@@\n"+change)
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

// TestASurvivorIsReported, and so is a mutant that does not compile; the rest
// are tried all the same, and the tree is as it was.
func TestASurvivorIsReported(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the go command")
	}
	g := module(t)
	results := results(g)
	require.NoError(t, g.run(t.Context(), three(t)))
	require.Len(t, results, 3)
	assert.Empty(t, results["mutant1"].why)
	assert.Contains(t, results["mutant1"].said, "seed 42: P1: not half")
	assert.Contains(t, results["mutant2"].why, "TestHalf ended with PASS")
	assert.Contains(t, results["mutant3"].why, "TestHalf did not run")
	assert.Contains(t, results["mutant3"].why, "missing return")

	text, err := os.ReadFile(filepath.Join(g.root, "half.go"))
	require.NoError(t, err)
	assert.Equal(t, code, string(text))
}

// TestASurvivorFailsTheGate, which says what the survivor is of.
func TestASurvivorFailsTheGate(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, all := progress{w: &out, total: 2}, three(t)
	p.report(result{mutant: &all[0], said: "seed 42", took: time.Second})
	assert.Equal(t, "  1/2    1.0s  killed      mutant1\n", out.String())
	assert.Zero(t, p.exitCode())
	p.report(result{mutant: &all[1], why: "TestHalf passed"})
	assert.Contains(t, out.String(), "  2/2    0.0s  NOT KILLED  mutant2\nTestHalf passed\n    the guard: a|b\n    without it: x\n")
	assert.Equal(t, exitFailed, p.exitCode())
	assert.Contains(t, out.String(), "1 of 2 were not killed")

	out.Reset()
	p.verbose = true
	p.report(result{mutant: &all[0], said: "seed 42"})
	assert.Contains(t, out.String(), "mutant1\nseed 42\n")
}

// TestAKillerMayBeInAModuleOfItsOwn, below the one that is mutated.
func TestAKillerMayBeInAModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the go command")
	}
	g := module(t)
	folder := filepath.Join(g.root, "contrib", "user", "inner")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	for name, text := range map[string]string{
		"../go.mod":     "module example.org/half/contrib/user\n\ngo 1.25\n",
		"inner.go":      "package inner\n\nfunc third(n int) int { return n / 3 }\n",
		"inner_test.go": "package inner\n\nimport \"testing\"\n\nfunc TestThird(t *testing.T) {\n\tif third(6) != 2 {\n\t\tt.Fatal(\"not a third\")\n\t}\n}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	m, err := parse("third", "guard: a\nwithout: b\nkilled by: contrib/user/inner TestThird\n\n--- contrib/user/inner third\n@@\n-func third(n int) int { return n / 3 }\n+func third(n int) int { return n / 2 }\n")
	require.NoError(t, err)
	results := results(g)
	require.NoError(t, g.run(t.Context(), []mutant{m}))
	require.Contains(t, results, "third")
	assert.Empty(t, results["third"].why)
}

// commands is a goTest that answers with what was recorded, and notes its
// arguments.
type commands struct {
	control, mutated string
	err              error

	mu   sync.Mutex
	args [][]string
}

func (c *commands) goTest(_ context.Context, args ...string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.args = append(c.args, args)
	if strings.HasPrefix(args[0], "-overlay=") {
		return c.mutated, c.err
	}
	return c.control, nil
}

// TestTheControlComesFirst, once for each command, and without it nothing is
// tried.
func TestTheControlComesFirst(t *testing.T) {
	t.Parallel()
	g, c := module(t), &commands{control: said["passes"], mutated: said["fails"]}
	g.jobs, g.goTest = 1, c.goTest
	mutants := three(t)
	mutants[2].flags = []string{"-schedules=7"}
	results := results(g)
	require.NoError(t, g.run(t.Context(), mutants))
	assert.Len(t, results, 3)
	require.Len(t, c.args, 5)
	assert.Contains(t, c.args[0], "-run=^TestHalf$")
	assert.Contains(t, c.args[0], "-count=1")
	assert.Contains(t, c.args[0], "-timeout=2m0s")
	assert.Equal(t, "./.", c.args[0][len(c.args[0])-1])
	assert.Equal(t, "-schedules=7", c.args[1][len(c.args[1])-1])
	assert.True(t, slices.Equal(c.args[2][1:], c.args[0]), "the same command but for the overlay")
	assert.Equal(t, "-schedules=7", c.args[4][len(c.args[4])-1])

	c.control, c.args = said["fails"], nil
	assert.ErrorContains(t, g.run(t.Context(), mutants), "without any mutant, in .: TestHalf did not pass")
	assert.Len(t, c.args, 1)
}

// TestNothingRunsIfAMutantDoesNotApply.
func TestNothingRunsIfAMutantDoesNotApply(t *testing.T) {
	t.Parallel()
	g, c := module(t), &commands{}
	g.goTest = c.goTest
	mutants := three(t)
	mutants[0].hunks[0].lines[0].text = "return n / 3"
	mutants[2].hunks[0].at = ". gone"
	err := g.run(t.Context(), mutants)
	assert.ErrorContains(t, err, "mutant mutant1: . half: there is no such place")
	assert.ErrorContains(t, err, "mutant mutant3")
	assert.Empty(t, c.args)
}

// TestAGoCommandThatDoesNotRunIsAnError and no verdict.
func TestAGoCommandThatDoesNotRunIsAnError(t *testing.T) {
	t.Parallel()
	g, c := module(t), &commands{control: said["passes"], err: errors.New("no go command")}
	g.jobs, g.goTest = 1, c.goTest
	assert.ErrorContains(t, g.run(t.Context(), three(t)), "no go command")
	assert.Len(t, c.args, 2, "and the others are not tried")
}

func TestAPatternMatchesTheTestsOnly(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `^TestA$|^TestB$/^one\+two$`, pattern([]string{"TestA", "TestB/one+two"}))
}
