package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

func TestEveryScenarioCanBeRunOnFiveServers(t *testing.T) {
	t.Parallel()
	require.Contains(t, scenarioNames(), "quick", "the default")
	for _, name := range scenarioNames() {
		o, err := parse([]string{"--scenario", name, "--nodes", "process"})
		require.NoError(t, err, name)
		assert.Equal(t, name, o.scenario)
		assert.Equal(t, 5, o.load.Nodes, name)
		assert.Equal(t, "redquorum", names(o)[0], "%s: the others are compared with it", name)
		assert.Regexp(t, `^[A-Z].*\.$`, o.about, "%s says in a sentence what it shows", name)
	}
}

func TestAFileIsAScenario(t *testing.T) {
	t.Parallel()
	file := written(t, "\n#  What it shows.\n# More of that.\n\n  callers   7  \r\nfault kill 2 at 500ms for 1s\n#callers 9\ndurable true\nnodes process")
	o := parsed(t, "--scenario", file)
	assert.Equal(t, "What it shows.", o.about)
	assert.Equal(t, 7, o.load.Callers)
	assert.True(t, o.durable)
	assert.Equal(t, "kill 2 at 500ms for 1s", o.fault)
	assert.Equal(t, "pause 1 at 1s for 500ms", parsed(t, "--scenario", file, "--fault", "pause 1 at 1s for 500ms").fault)
}

func TestAScenarioThatComesAlongGoesBeforeAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("smoke", []byte("callers 3"), 0o600))
	require.NoError(t, os.WriteFile("mine", []byte("callers 3"), 0o600))
	assert.Equal(t, 8, parsed(t, "--scenario", "smoke").load.Callers)
	assert.Equal(t, 3, parsed(t, "--scenario", filepath.Join(".", "mine")).load.Callers)
}

func TestBadLinesOfAScenarioAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"# About.\n\ncallers":       {"line 3", `"callers"`, "such as: callers 64"},
		"--callers 64":              {"line 1", "without its dashes"},
		"calls 64":                  {"line 1", "calls 64", "no such flag"},
		"callers 4\ncallers many":   {"line 2", "callers many"},
		"duration 5":                {"line 1", "duration 5"},
		"sweep colour=1":            {"line 1", `"colour=1"`, "length"},
		"scenario smoke":            {"line 1", "command line only"},
		"list true":                 {"line 1", "command line only"},
		"fault kill 2 at 5s for 5s": {"--fault", "would not end"}, // the default is shorter
	} {
		file := written(t, text)
		_, err := parse([]string{"--scenario", file})
		for _, want := range want {
			assert.ErrorContains(t, err, want, "%q", text)
		}
		if err != nil && strings.Contains(err.Error(), "line ") {
			assert.ErrorContains(t, err, file)
		}
	}
	_, err := parse([]string{"--scenario", t.TempDir()})
	assert.Error(t, err, "a folder")
}

func TestTheListHasAllThereIs(t *testing.T) {
	t.Parallel()
	for _, got := range []called{call(t.Context(), "--list"), call(t.Context(), "--list", "--scenario", "nothing")} {
		assert.Zero(t, got.code)
		assert.Empty(t, got.errors)
		for _, name := range scenarioNames() {
			s, err := loadScenario(name)
			require.NoError(t, err)
			assert.Regexp(t, `(?m)^  `+name+` +`+regexp.QuoteMeta(s.about())+`$`, got.out)
		}
		for _, s := range subject.All() {
			assert.Contains(t, got.out, s.Name)
			assert.Contains(t, got.out, s.Title)
		}
		assert.NotContains(t, got.out, "\t")
	}
}
