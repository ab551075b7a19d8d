package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
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
	return &gate{root: dir, jobs: 2, do: do, report: func(result) {}}
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

// three returns a mutant that TestHalf kills, one that it does not, and one that is built apart, because
// it changes a signature as well.
func three(t *testing.T) []mutant {
	t.Helper()
	var all []mutant
	for _, change := range []string{"-	return n / 2\n+	return n\n", "-	if n < 0 {\n+	if n < -1 {\n", "-func half(n int) int {\n+func half(n int, _ ...int) int {\n if n < 0 {\n-	return 0\n+	n = 0\n"} {
		m, err := parse("mutant"+string(rune('1'+len(all))), "guard: a|b\nwithout: x\nkilled by: . TestHalf\nsays: P1:\n\n--- . half\n@@\n"+change)
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

// TestASurvivorIsReported; the rest are tried all the same, and the tree is as it was.
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
	assert.Contains(t, results["mutant3"].why, "TestHalf ended with PASS")

	text, err := os.ReadFile(filepath.Join(g.root, "half.go"))
	require.NoError(t, err)
	assert.Equal(t, code, string(text))
}

// TestAMutantThatDoesNotCompileIsNamed, and ends all.
func TestAMutantThatDoesNotCompileIsNamed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the go command")
	}
	g, mutants := module(t), three(t)
	mutants[1].hunks[0].lines[1].text = "if nothing {"
	assert.ErrorContains(t, g.run(t.Context(), mutants), "mutant2.diff:2: undefined: nothing")
}

// TestASurvivorFailsTheGate, which says what the survivor is of.
func TestASurvivorFailsTheGate(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, all := progress{w: &out, total: 2}, three(t)
	p.report(result{mutant: &all[0], said: "seed 42", took: time.Second})
	assert.Equal(t, "  1/2    1.0s  killed      mutant1: a|b\n", out.String())
	assert.Zero(t, p.exitCode())
	p.report(result{mutant: &all[1], why: "TestHalf passed"})
	assert.Contains(t, out.String(), "  2/2    0.0s  NOT KILLED  mutant2: a|b\nTestHalf passed\n    without it: x\n")
	assert.Equal(t, exitFailed, p.exitCode())
	assert.Contains(t, out.String(), "1 of 2 were not killed")

	out.Reset()
	p.verbose = true
	p.report(result{mutant: &all[0], said: "seed 42"})
	assert.Contains(t, out.String(), "mutant1: a|b\nseed 42\n")
}

// commands is a gate's do: it builds nothing, answers with what was recorded, and notes what it was to do.
type commands struct {
	control, mutated string
	err              error

	mu   sync.Mutex
	done [][]string // each begins with the mutant's name
}

func (c *commands) do(_ context.Context, _, mutant string, command ...string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(command, "-o"); i > 0 {
		return "", os.WriteFile(command[i+1], nil, 0o600)
	}
	c.done = append(c.done, append([]string{mutant}, command...))
	if mutant != "" {
		return c.mutated, c.err
	}
	return c.control, nil
}

// TestTheControlComesFirst, once for each command, and without it nothing is tried.
func TestTheControlComesFirst(t *testing.T) {
	t.Parallel()
	g, c := module(t), &commands{control: said["passes"], mutated: said["fails"]}
	g.jobs, g.do = 1, c.do
	mutants := three(t)
	mutants[2].flags = []string{"-schedules=7"}
	results := results(g)
	require.NoError(t, g.run(t.Context(), mutants))
	assert.Len(t, results, 3)
	require.Len(t, c.done, 5)
	assert.Contains(t, c.done[0], "-test.run=^TestHalf$")
	assert.Contains(t, c.done[0], "-test.timeout=2m0s")
	assert.Equal(t, append(c.done[0], "-schedules=7"), c.done[1])
	assert.Equal(t, append([]string{"mutant1"}, c.done[0][1:]...), c.done[2])
	assert.Equal(t, "mutant2", c.done[3][0])
	assert.NotEqual(t, c.done[3][1], c.done[4][1], "which has a binary of its own")
	assert.Equal(t, "-schedules=7", c.done[4][len(c.done[4])-1])

	c.control, c.done = said["fails"], nil
	assert.ErrorContains(t, g.run(t.Context(), mutants), "without any mutant, in .: TestHalf did not pass")
	assert.Len(t, c.done, 1)
}
