package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
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

// TestEverySettingHasItsFlag: at least one command has the flag. A setting without a flag would be
// accepted without effect.
func TestEverySettingHasItsFlag(t *testing.T) {
	for _, s := range settings {
		assert.True(t, s.flag == "" || slices.ContainsFunc(ours(), func(c *cobra.Command) bool { return c.Flags().Lookup(s.flag) != nil }), s.flag)
	}
}

func TestHelpCoversEachCommandAndTopic(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"help"}, 0, "--version"},
		{nil, exitUsage, "Usage:"},
		{[]string{"--version"}, 0, "redlock version "},
		{[]string{"demo", "--help"}, 0, "--node"},
		{[]string{"help", "run"}, 0, "Usage:\n  redlock run"},
		{[]string{"help", "config"}, 0, "$REDLOCK_NODES"},
		{[]string{"help", "completion", "bash"}, 0, "autocompletion"},
	} {
		code, out, errs := redlockCommand(t, test.args...)
		assert.Equal(t, test.code, code, test.args)
		assert.Contains(t, out+errs, test.says)
		assert.Equal(t, test.code == 0, errs == "", errs)
	}
}

// TestFailedOutputIsReported: even commands that only print a text report it.
func TestFailedOutputIsReported(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	for _, line := range []string{"help run", "run --help", "help config", "help", "completion", "completion bash", "version", "--version"} {
		var errs bytes.Buffer
		assert.Equal(t, exitFailed, run(t.Context(), strings.Fields(line), full, &errs), line)
		assert.Contains(t, errs.String(), "no space left", line)
	}
}

func TestCompletionsContainNoBackquotes(t *testing.T) {
	for _, c := range ours() {
		words := append([]string{"__complete"}, strings.Fields(c.CommandPath())[1:]...)
		code, out, _ := redlockCommand(t, append(words, "--")...)
		assert.Zero(t, code)
		assert.NotContains(t, out, "`")
		if c.Name() == "run" {
			assert.Contains(t, out, "--node\tURL of a server")
		}
	}
}

// TestShellsOfferValidCompletions: shells offer files only where a file is valid.
func TestShellsOfferValidCompletions(t *testing.T) {
	f := startFleet(t, fleet.Embedded, 3)
	put(t, f.URLs()[:1], "nightly", "v")
	put(t, f.URLs()[1:], "hourly", "v")
	put(t, f.URLs()[1:], "odd name", "v")
	isolate(t, "", map[string]string{"REDLOCK_NODES": strings.Join(f.URLs(), ",")})
	const files, nothing, directories = ":0\n", ":4\n", ":16\n"
	for _, test := range []struct {
		line, want string
	}{
		{"nodes --kind", "embedded\nprocess\n" + nothing},
		{"demo --node", "embedded\nprocess\n" + nothing},
		{"nodes --port", nothing},
		{"doctor", nothing},
		{"status", "hourly\nnightly\n" + nothing},
		{"status nightly", "hourly\nnightly\n" + nothing},
		{"release", "hourly\nnightly\n" + nothing},
		{"release nightly", nothing},
		{"release nightly --value", nothing},
		{"run", nothing},
		{"run --ttl", nothing},
		{"run nightly --", files},
		{"hold", nothing},
		{"status --config", files},
		{"run --tls-ca", files},
		{"status --tls-ca /no/file", "hourly\nnightly\n" + nothing},
		{"man", directories},
	} {
		code, out, _ := redlockCommand(t, append(append([]string{"__complete"}, strings.Fields(test.line)...), "")...)
		assert.Zero(t, code)
		assert.Equal(t, test.want, out, test.line)
	}
	_, out, _ := redlockCommand(t, "__complete", "status", "ni")
	assert.Equal(t, "nightly\n"+nothing, out)
}

// TestManualPagesKeepTables: the pages also have the topic, and the name of a value if its flag has
// no real default.
func TestManualPagesKeepTables(t *testing.T) {
	dir := t.TempDir()
	succeeds(t, "man", dir)
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
	assert.Contains(t, page("redlock.1"), "redlock-config(1)")
	config := strings.Split(page("redlock-config.1"), "\n")
	assert.Contains(t, strings.Join(config, "\n"), "$REDLOCK_NODE_TIMEOUT")
	i := slices.Index(config, "  ttl: 10s")
	tr.Positive(t, i, "the file of redlock help config")
	assert.Contains(t, config[:i], ".EX")
	assert.Contains(t, config[i:], ".EE")
	run := page("redlock-run.1")
	assert.Contains(t, run, ".EX\n  REDLOCK_NAME         the name\n")
	assert.NotContains(t, run, "=0s")
	assert.Contains(t, run, "=DURATION")
	assert.Contains(t, run, "=10s")
}
