package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

func TestHelpFitsAWindow(t *testing.T) {
	for _, c := range ours() {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		code, out, errs := redlockCommand(t, args...)
		assert.Zero(t, code, args)
		assert.Empty(t, errs, args)
		for line := range strings.Lines(out) {
			assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 100, "%v: %s", args, line)
		}
		assert.False(t, strings.HasSuffix(out, "\n\n"), args)
	}
}

func TestHelpConfigListsEverySetting(t *testing.T) {
	listed := func(setting string) {
		assert.Contains(t, configHelp, "$REDLOCK_"+strings.ToUpper(setting)+" ", setting)
	}
	for _, c := range ours() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if key := f.Annotations[shared]; key != nil {
				listed(key[0])
				assert.Contains(t, configHelp, "--"+f.Name+" ")
			}
		})
	}
	for _, key := range secretSettings() {
		listed(key)
	}
}

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
