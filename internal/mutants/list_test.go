package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryMutantApplies to the code as it is, is still Go, and names a test that exists, with flags
// that it knows. A mutant of a guard that was rewritten must be rewritten too.
func TestEveryMutantApplies(t *testing.T) {
	t.Parallel()
	all, err := chosen(nil)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, m := range all {
		changed, err := m.apply(os.DirFS("../.."))
		if !assert.NoError(t, err) {
			continue
		}
		for file, text := range changed {
			if path.Ext(file) != ".go" {
				continue
			}
			_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
			assert.NoError(t, err, m.name)
		}
		test, _, _ := strings.Cut(m.test, "/")
		assert.True(t, testsHave(t, m.pkg, `(?m)^func `+test+`\(t \*testing\.T\)`), "mutant %s: package %s has no %s", m.name, m.pkg, test)
		for _, f := range m.flags {
			name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
			assert.True(t, testsHave(t, m.pkg, `flag\.\w+\([^)]*"`+name+`"`), "mutant %s: the tests of %s have no flag %s", m.name, m.pkg, f)
		}
	}
}

// testsHave reports whether a test file of a package of the module has a text that matches.
func testsHave(t *testing.T, pkg, pattern string) bool {
	files, err := filepath.Glob(filepath.Join("..", "..", pkg, "*_test.go"))
	require.NoError(t, err)
	declaration := regexp.MustCompile(pattern)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		if declaration.Match(text) {
			return true
		}
	}
	return false
}

// TestTheTableHasEachMutant: the guards that docs/SAFETY.md lists are the mutants, in the
// order of their names. go run ./internal/mutants -markdown prints the table.
func TestTheTableHasEachMutant(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/SAFETY.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), tableHead+"\n|---|---|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	seed := regexp.MustCompile(` (-|\d+) \|$`)
	var listed []string
	for l := range strings.Lines(table) {
		l = strings.TrimSpace(l)
		assert.Regexp(t, seed, l)
		listed = append(listed, seed.ReplaceAllString(l, ""))
	}
	all, err := chosen(nil)
	require.NoError(t, err)
	var want []string
	for _, m := range all {
		want = append(want, row(&m))
	}
	require.Len(t, listed, len(want))
	for i := range want {
		require.Equal(t, want[i], listed[i])
	}
}

func TestMutantsAreChosenByPatterns(t *testing.T) {
	t.Parallel()
	some, err := chosen([]string{"quorum-half", "quorum-half-*"})
	require.NoError(t, err)
	require.Len(t, some, 2)
	_, err = chosen([]string{"quorum-*", "nonsense"})
	assert.EqualError(t, err, "no mutant is called nonsense")
	_, err = chosen([]string{"["})
	assert.Error(t, err)
}

// TestPartsAreAllMutantsTogether, each once.
func TestPartsAreAllMutantsTogether(t *testing.T) {
	t.Parallel()
	all := []mutant{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}, {name: "e"}}
	for _, n := range []int{1, 2, 3, 7} {
		var together []string
		for i := range n {
			part, err := partOf(all, fmt.Sprint(i+1, "/", n))
			require.NoError(t, err)
			assert.LessOrEqual(t, len(part), (len(all)+n-1)/n)
			for _, m := range part {
				together = append(together, m.name)
			}
		}
		assert.ElementsMatch(t, []string{"a", "b", "c", "d", "e"}, together)
	}
	for _, text := range []string{"", "1", "0/2", "3/2", "-1/2", "1/0", "a/b"} {
		_, err := partOf(all, text)
		assert.ErrorContains(t, err, "must be like 1/3", text)
	}
}
