package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/subject"
	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/fleet"
)

func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.md")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parse(args)
	require.NoError(t, err)
	return o
}

func TestFlagsOverrideTheScenarioAndThatTheDefaults(t *testing.T) {
	t.Parallel()
	file := written(t, "\n#  What it shows.\n# More.\n\n  subjects bsm,limit\r\ncallers 7\nduration 3s\n#callers 9\nnodes process\n")
	o := parsed(t, "--scenario", file, "--duration", "5s", "--nodes=embedded")
	assert.Equal(t, "bsm,limit", o.subjects)
	assert.Equal(t, 7, o.load.Callers)
	assert.Equal(t, 5*time.Second, o.load.Duration)
	assert.Equal(t, fleet.Embedded, o.kind)
	assert.Equal(t, 3, o.rounds)
	assert.Equal(t, "What it shows.", o.about)
	o = parsed(t, "--nodes", "redis://a:1,redis://b:2,unix:///c", "--n", "7")
	assert.Equal(t, fleet.Addrs, o.kind)
	assert.Equal(t, 3, o.load.Nodes)
}

func TestEveryScenarioRunsOnFiveServers(t *testing.T) {
	t.Parallel()
	listed := call(t.Context(), "--list")
	assert.Zero(t, listed.code)
	for _, name := range scenarioNames() {
		o := parsed(t, "--scenario", name, "--nodes", "process")
		assert.Equal(t, 5, o.load.Nodes, name)
		assert.Equal(t, "redquorum", o.specs[0].Name, "%s: the others are compared with it", name)
		assert.Regexp(t, `^[A-Z].*\.$`, o.about, name)
		assert.Contains(t, listed.out, o.about)
	}
	for _, s := range subject.All() {
		assert.Contains(t, listed.out, s.Title)
	}
}

func TestInvalidFlagsAreReported(t *testing.T) {
	t.Parallel()
	scenario := written(t, "# About.\n\ncallers many")
	for args, want := range map[string]string{
		"--bogus":                     "--help",
		"--callers many":              "many",
		"kill":                        "unexpected argument",
		"--scenario nothing":          "smoke",
		"--scenario " + scenario:      "line 3",
		"--subjects redlock":          "rueidislock",
		"--subjects bsm,redsync,bsm":  "bsm is duplicated",
		"--rounds 0":                  "--rounds",
		"--duration 0s":               "--duration",
		"--warmup -1s":                "--warmup",
		"--n 0":                       "--n ",
		"--callers 3 --processes 4":   "--processes 4",
		"--processes 0":               "--processes 0",
		"--rate NaN":                  "--rate",
		"--hold -1s":                  "--hold",
		"--ttl 9ms":                   "at least 10ms",
		"--names some":                "one for all",
		"--scenario pause --n 1":      "there are 1 nodes",
		"--nodes docker":              "specify embedded, process",
		"--nodes redis://a --durable": "--durable",
		"--nodes redis://a,redis://b --scenario pause": "--fault",
		"--durable": "--durable",
		"--held 10": "redsync does not renew",
		"--subjects redquorum --held 10 --rate 5": "--held",
		"--subjects limit --names single":         "limit has no locks",
		"--document x.md --rounds 1":              "--document",
	} {
		got := call(t.Context(), strings.Fields(args)...)
		assert.Equal(t, exitUsage, got.code, args)
		assert.Contains(t, got.errors, want, args)
		assert.Equal(t, 1, strings.Count(got.errors, "\n"), args)
		assert.Empty(t, got.out, args)
	}
	got := call(t.Context(), "--help")
	assert.Zero(t, got.code)
	assert.Contains(t, got.out, `(default "embedded")`)
}

func TestErrorsShowNoPasswords(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--nodes", "redis://u:s3cret@a:1,", "redis://u:s3cret@b:1"}, // a space too many
		{"--nodes", "u:s3cret@a:1"},
		{"--nodes", "redis://u:s3cret@a:1", "--durable"},
		{"--nodes", "redis://:s3cret@127.0.0.1:1"},
		{"--nodes", "redis://:s3c/ret@127.0.0.1:1"},
		{"--nodes", "redis://:s3,cret@127.0.0.1:1"},
		{"--nodes", "redis://:s3%zzcret@127.0.0.1:1"},
		{"--nodes", "http://:s3cret@127.0.0.1:1"},
	} {
		got := call(t.Context(), short(args...)...)
		assert.NotZero(t, got.code)
		assert.NotRegexp(t, "s3|cret", got.errors, "%v", args)
	}
}

func TestPageGetsTheFiguresOfItsCommands(t *testing.T) {
	t.Parallel()
	const command = "    go -C bench run . --subjects redquorum-noguard,redsync --callers 2 --rounds 1 --duration 1s"
	const fails = "    go -C bench run . --nodes redis://127.0.0.1:1 --rounds 1\n\n<!-- figures -->\nkept\n<!-- end -->\n\n"
	const begin = "# Figures\n\nMeasured: never\n\n" + fails + command + "\n\n<!-- figures -->\n"
	const end = "<!-- end -->\n\n![What it shows](pictures/quick-throughput.svg)\n\n" + command + " --names single\n\n| Another | table |\n"
	file := written(t, begin+"\n| old |\n|---|\n\n"+end)
	dir := filepath.Join(filepath.Dir(file), "pictures")
	require.NoError(t, os.Mkdir(dir, 0o755))
	got := call(t.Context(), "--document", file)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errors, "--nodes redis://127.0.0.1:1 --rounds 1: ")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "old")
	assert.Contains(t, string(text), fails, "the old figures")
	assert.Regexp(t, `(?m)^Measured: (commit .[0-9a-f]+(-dirty)?.|unknown commit), \d+ [A-Z][a-z]+ 20\d\d; .*CPUs, go1\.[0-9.]+`, string(text))
	assert.Regexp(t, `<!-- figures -->\n\n\|  \| ratio \| cycles/s \|.*\n\| --- \|.*\n\| redquorum, no memory guard \|.*\n\| redsync .*\|\n\n<!-- end`, string(text))
	assert.True(t, strings.HasSuffix(string(text), end), string(text))
	assert.FileExists(t, filepath.Join(dir, "quick-throughput.svg"))
	require.NoError(t, err)

	got = call(t.Context(), "--document", written(t, command+"\n    go -C bench run . --callers many"))
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errors, "--callers many")
	assert.Empty(t, got.out, "nothing was measured")
}

// TestCommandsOfPagesAreValid: flags, scenarios and subjects exist, and the benchmarks' page has real
// servers.
func TestCommandsOfPagesAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	for _, c := range documents.Commands(t) {
		args, ours := c.Calls("go -C bench run .")
		if !ours {
			continue
		}
		found++
		_, err := parse(args)
		assert.NoError(t, err, c.Place())
		if c.Document == "docs/BENCHMARKS.md" {
			assert.Contains(t, c.Text, " --nodes process ")
		}
	}
	assert.Greater(t, found, 5)
}
