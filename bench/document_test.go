package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/readme"
)

func TestADocumentGetsWhatItsCommandsMeasure(t *testing.T) {
	t.Parallel()
	const command = "    go -C bench run . --subjects redquorum-noguard,redsync --callers 2 --rounds 1 --duration 50ms --warmup 0s"
	const before = "# Figures\n\nMeasured: never\n\n" + command + "\n\n" +
		"| old |\n|---|\n| older |\n\n![What it shows](pictures/quick-throughput.svg)\n\nProse | stays.\n\n" +
		command + " --names single\n\nNo table is here.\n\n| Another | table |\n"
	file := written(t, before)
	dir := filepath.Join(filepath.Dir(file), "pictures")
	require.NoError(t, os.Mkdir(dir, 0o755))
	got := call(t.Context(), "--document", file)
	require.Zero(t, got.code, got.errors)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	after := string(text)
	assert.NotContains(t, after, "old")
	assert.Regexp(t, `(?m)^Measured: (commit .[0-9a-f]+(-dirty)?.|unknown commit), \d+ [A-Z][a-z]+ 20\d\d; .*CPUs, go1\.[0-9.]+`, after)
	assert.Regexp(t, `warmup 0s\n\n\|  \| ratio \| cycles/s \|.*\n\| --- \|.*\n\| redquorum, no memory guard \|.*\n\| redsync .*\|\n\n!\[What`, after)
	assert.True(t, strings.HasSuffix(after, before[strings.Index(before, "\n\n![What"):]), after)

	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "only what is shown")
	svg, err := os.ReadFile(filepath.Join(dir, "quick-throughput.svg"))
	require.NoError(t, err)
	assert.Contains(t, string(svg), "names own", "of the first command that draws it")
}

func TestADocumentIsCheckedBeforeAnythingIsMeasured(t *testing.T) {
	t.Parallel()
	const good = "    go -C bench run . --rounds 1\n"
	for text, want := range map[string]string{
		"nothing": "has no line that begins",
		good + "    go -C bench run . --callers many":         "line 2",
		good + "    go -C bench run . --fault 'kill 1 at 1s'": "without quotes",
		good + good:                           "line 2: this command is there twice",
		good + "    go -C bench run . --list": "--list",
	} {
		got := call(t.Context(), "--document", written(t, text))
		assert.Equal(t, exitFailed, got.code, text)
		assert.Contains(t, got.errors, want, text)
		assert.Empty(t, got.out, "nothing was measured")
	}
	got := call(t.Context(), "--document", filepath.Join(t.TempDir(), "none.md"))
	assert.Contains(t, got.errors, "--document")
	got = call(t.Context(), "--document", "x.md", "--rounds", "1")
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.errors, "--document is alone")
}

func TestACommandThatFailsKeepsItsTableAndTheOthersRun(t *testing.T) {
	t.Parallel()
	const table = "\n| old |\n|---|\n"
	const fails = "    go -C bench run . --nodes redis://127.0.0.1:1 --rounds 1\n"
	file := written(t, fails+table+"\n    go -C bench run . --subjects redsync --callers 2 --rounds 1 --duration 50ms\n"+table)
	got := call(t.Context(), "--document", file)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errors, "--nodes redis://127.0.0.1:1 --rounds 1: ")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), fails+table), string(text))
	assert.Equal(t, 1, strings.Count(string(text), "old"), string(text))
}

func TestAPictureThatNoCommandDrawsIsSaid(t *testing.T) {
	t.Parallel()
	d := document{path: "a.md", pictures: map[string]string{"a.svg": "pictures/a.svg"}}
	_, err := d.measure(t.Context(), nil, nil)
	assert.ErrorContains(t, err, "a.md shows pictures/a.svg, which none")
}

// The commands of the benchmarks' own page must work when it is measured anew.
func TestTheBenchmarksPageCanBeMeasured(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "BENCHMARKS.md")
	d, err := openDocument(path)
	require.NoError(t, err)
	for _, c := range d.commands {
		assert.Contains(t, c.text, " --nodes process ", "embedded nodes say nothing of speed")
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), "\n"+measuredPrefix)
}

// placeholders are what documents write for a value of the reader's.
var placeholders = map[string]string{"URLS": "redis://127.0.0.1:7001", "N": "4", "H": "2ms", "FILE": "file", "DIR": "folder"}

// TestCommandsOfDocumentsCanBeRun: flags, scenarios and subjects of each command line are there.
func TestCommandsOfDocumentsCanBeRun(t *testing.T) {
	parsed := 0
	for _, c := range readme.Commands(t) {
		args, ours := c.Calls("go -C bench run .")
		if !ours {
			continue
		}
		parsed++
		for i, word := range args {
			if value, yes := placeholders[word]; yes {
				args[i] = value
			}
		}
		_, err := parse(args)
		assert.NoError(t, err, c.Place())
	}
	assert.Greater(t, parsed, 5)
}
