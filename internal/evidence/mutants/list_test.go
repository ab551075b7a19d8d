package main

import (
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

const root = "../../.."

// TestEveryMutantApplies: each mutant applies to the present code, and names an existing test. A
// mutant of a guard that was rewritten must be rewritten too.
func TestEveryMutantApplies(t *testing.T) {
	t.Parallel()
	all, err := load(list())
	require.NoError(t, err)
	s := source{os.DirFS(root), map[string][]*place{}}
	for _, m := range all {
		_, err := m.apply(s)
		assert.NoError(t, err)
		test, _, _ := strings.Cut(m.test, "/")
		files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)")
		}), "mutant %s: package %s has no %s", m.name, m.pkg, test)
	}
}

// TestEveryMutantCompiles: mutants of scripts are excluded, because servers check them.
func TestEveryMutantCompiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the go command")
	}
	all, err := load(list())
	require.NoError(t, err)
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	g := gate{absolute, t.TempDir()}
	woven, apart, err := weave(source{os.DirFS(root), map[string][]*place{}}, all)
	require.NoError(t, err)
	apart["woven"] = woven
	for name, files := range apart {
		packages := map[string]bool{}
		for file := range files {
			if path.Ext(file) == ".go" {
				packages["./"+path.Dir(file)] = true
			}
		}
		if len(packages) == 0 {
			continue
		}
		overlay, err := g.overlay(name, files)
		require.NoError(t, err)
		said, err := do(absolute, "", "go", append([]string{"build", "-overlay=" + overlay}, slices.Sorted(maps.Keys(packages))...)...)
		assert.NoError(t, err, "%s: %s", name, said)
	}
}

// TestDocumentsNameExistingMutants: documents name mutants as "mutant `quorum-half`" or "mutants
// `set-*` and `share-*`".
func TestDocumentsNameExistingMutants(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	named, name, count := regexp.MustCompile("mutants?\\s+`[a-z*-]+`(,? (and )?`[a-z*-]+`)*"), regexp.MustCompile("`([^`]+)`"), 0
	for _, file := range append(files, root+"/CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, names := range named.FindAllString(string(text), -1) {
			for _, n := range name.FindAllStringSubmatch(names, -1) {
				_, err := load(list(), n[1])
				assert.NoError(t, err, file)
				count++
			}
		}
	}
	assert.NotZero(t, count)
}
