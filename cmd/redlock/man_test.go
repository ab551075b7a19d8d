package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

// TestManualPagesKeepTables, have the topic, and name values instead of defaults
// that are none.
func TestManualPagesKeepTables(t *testing.T) {
	dir := t.TempDir()
	code, _, errs := redlockCommand(t, "man", dir)
	tr.Zero(t, code, errs)
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		tr.NoError(t, err)
		return strings.ReplaceAll(string(text), `\-`, "-")
	}
	for _, c := range ours() {
		if c.Runnable() {
			page(strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1")
		}
	}
	root := strings.Split(page("redlock.1"), "\n")
	i := slices.Index(root, "  ttl: 10s")
	tr.Positive(t, i, "the file of redlock help config")
	assert.Contains(t, root[:i], ".EX")
	assert.Contains(t, root[i:], ".EE")
	run := page("redlock-run.1")
	assert.Contains(t, run, ".EX\n  REDLOCK_NAME         the name\n")
	assert.NotContains(t, run, "=0s")
	assert.Contains(t, run, "=DURATION")
	assert.Contains(t, run, "=10s")
}
