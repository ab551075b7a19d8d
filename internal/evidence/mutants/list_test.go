package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryMutantApplies to the code as it is, and names a test that exists, with flags that it knows. A
// mutant of a guard that was rewritten must be rewritten too.
func TestEveryMutantApplies(t *testing.T) {
	t.Parallel()
	all, err := chosen(nil)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, m := range all {
		_, err := m.apply(os.DirFS("../../.."))
		assert.NoError(t, err)
		test, _, _ := strings.Cut(m.test, "/")
		assert.True(t, testsHave(t, m.pkg, `(?m)^func `+test+`\(t \*testing\.T\)`), "mutant %s: package %s has no %s", m.name, m.pkg, test)
		for _, f := range m.flags {
			name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
			assert.True(t, testsHave(t, m.pkg, `flag\.\w+\([^)]*"`+name+`"`), "mutant %s: the tests of %s have no flag %s", m.name, m.pkg, f)
		}
	}
}

// TestEveryMutantCompiles, but those of scripts, which servers check.
func TestEveryMutantCompiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the go command")
	}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	all, err := chosen(nil)
	require.NoError(t, err)
	g := gate{root: root}
	woven, apart, err := weave(os.DirFS(root), all)
	require.NoError(t, err)
	for i, files := range append(apart, woven) {
		packages := map[string]bool{}
		for file := range files {
			if path.Ext(file) == ".go" {
				packages["./"+path.Dir(file)] = true
			}
		}
		if len(packages) == 0 {
			continue
		}
		overlay, err := g.overlay(filepath.Join(t.TempDir(), fmt.Sprint(i)), files)
		require.NoError(t, err)
		said, err := do(t.Context(), root, "", append([]string{"go", "build", "-overlay=" + overlay}, slices.Sorted(maps.Keys(packages))...)...)
		require.NoError(t, err)
		assert.Empty(t, said)
	}
}

// testsHave reports whether a test file of a package of the module has a text that matches.
func testsHave(t *testing.T, pkg, pattern string) bool {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", pkg, "*_test.go"))
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

func TestMutantsAreChosenByPatterns(t *testing.T) {
	t.Parallel()
	some, err := chosen([]string{"quorum-half", "value-*"})
	require.NoError(t, err)
	require.Len(t, some, 2)
	_, err = chosen([]string{"quorum-*", "nonsense"})
	assert.EqualError(t, err, "no mutant is called nonsense")
	_, err = chosen([]string{"["})
	assert.Error(t, err)
}

// TestDocumentsNameMutantsThatAreThere, as "mutant `quorum-half`" or "mutants `set-*` and `share-*`".
func TestDocumentsNameMutantsThatAreThere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	named, name, count := regexp.MustCompile("mutants?\\s+`[a-z*-]+`(,? (and )?`[a-z*-]+`)*"), regexp.MustCompile("`([^`]+)`"), 0
	for _, file := range append(files, "../../../CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, names := range named.FindAllString(string(text), -1) {
			for _, n := range name.FindAllStringSubmatch(names, -1) {
				_, err := chosen([]string{n[1]})
				assert.NoError(t, err, file)
				count++
			}
		}
	}
	assert.NotZero(t, count)
}
