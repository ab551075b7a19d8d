package spec_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/testenv"
)

var update = flag.Bool("update", false, "write RUNS.md anew, from what Spin says")

const document = "RUNS.md"

// A run is one exploration of a model. Without a switch the promise must hold.
type run struct {
	model   string
	variant []string // other macros, as NAME or NAME=VALUE
	broken  string   // the switch that must break the promise
	depth   string   // bounds a search in depth; empty: in breadth, so that the way is short
}

// Each run takes a second or a few. lock.pml without a switch goes everywhere with an extension;
// with a third client, and with losses that no one notices, a TTL is two ticks.
var runs = []run{
	{model: "lock.pml"},
	{model: "lock.pml", variant: []string{"CLIENTS=3", "TTL=2"}},
	{model: "lock.pml", variant: []string{"UNNOTICED", "TTL=2"}},
	{model: "lock.pml", broken: "NO_GUARD"},
	{model: "lock.pml", broken: "SHORT_QUARANTINE"},
	{model: "lock.pml", broken: "TOO_MANY_FORGET"},
	{model: "lock.pml", broken: "CLOCKS_OFF"},
	{model: "lock.pml", broken: "IGNORE_DEADLINE", variant: []string{"TTL=2"}},
	{model: "lock.pml", broken: "OTHER_NODES"},
	{model: "lock.pml", broken: "HALF_IS_QUORUM"},
	{model: "lock.pml", broken: "COUNT_FROM_GRANT"},
	{model: "lock.pml", broken: "RELEASE_ANYONES", variant: []string{"TTL=2"}},
	{model: "lock.pml", broken: "MUTE_EXTENDS", depth: "80"}, // in breadth it takes 4 million states
	{model: "fence.pml"},
	{model: "fence.pml", broken: "NO_CHECK"},
	{model: "fence.pml", broken: "COUNTER_LOST"},
	{model: "fence.pml", broken: "INCR_AND_MAX"},
	{model: "fence.pml", broken: "ACCEPT_EQUAL"},
	{model: "fence.pml", broken: "COUNT_TOGETHER"},
	{model: "shared.pml"},
	{model: "shared.pml", broken: "NO_MARKER"},
	{model: "shared.pml", broken: "FIRST_EXPIRY"},
	{model: "shared.pml", broken: "LEAVE_DELETES"},
	{model: "shared.pml", broken: "EXTEND_BLINDLY"},
	{model: "shared.pml", broken: "DOWNGRADE_WRITES"},
}

// A finding is the result of a run of Spin.
type finding struct {
	run
	states string
	steps  []string // to the broken promise; none if it holds
}

// Without a switch each promise holds. Each switch breaks one promise, and RUNS.md describes how.
func TestEachSwitchBreaksAPromise(t *testing.T) {
	if !*update {
		testenv.OnlyLong(t)
	}
	testenv.NeedProgram(t, "spin")
	version := strings.TrimSpace(output(t, ".", "spin", "-V"))
	found := make([]finding, len(runs))
	t.Run("runs", func(t *testing.T) {
		for i, r := range runs {
			t.Run(r.String(), func(t *testing.T) {
				t.Parallel()
				found[i] = r.explore(t)
				if r.broken == "" {
					assert.Empty(t, found[i].steps, "the promise is broken")
				} else {
					assert.NotEmpty(t, found[i].steps, "the switch breaks no promise")
				}
			})
		}
	})
	if t.Failed() || slices.ContainsFunc(found, func(f finding) bool { return f.states == "" }) {
		return // it failed, or -run has left some out
	}
	text := render(t, version, found)
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(text), 0o644))
	}
	kept, err := os.ReadFile(document)
	require.NoError(t, err)
	if !strings.Contains(string(kept), version) {
		t.Logf("%s is of another version than %s, which may count states otherwise: not compared", document, version)
		return
	}
	assert.Equal(t, text, string(kept), "write it anew with: go test ./spec -update")
}

// Every switch of a model is run, so that none is there that breaks nothing.
func TestEachSwitchIsRun(t *testing.T) {
	t.Parallel()
	var models []string
	for _, r := range runs {
		models = append(models, r.model)
	}
	there, err := filepath.Glob("*.pml")
	require.NoError(t, err)
	assert.ElementsMatch(t, there, slices.Compact(models))
	for _, model := range there {
		for name := range switches(t, model) {
			assert.True(t, slices.ContainsFunc(runs, func(r run) bool {
				return r.model == model && (r.broken == name || slices.Contains(r.variant, name))
			}), "%s: no run has %s", model, name)
		}
	}
}

// switches returns the switches of a model, with the comment of each.
func switches(t *testing.T, model string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(model)
	require.NoError(t, err)
	all := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^#(?:ifdef|ifndef|if|elif) (?:defined\()?([A-Z_]+).*/\* (.*) \*/`).FindAllStringSubmatch(string(text), -1) {
		all[found[1]] = found[2]
	}
	require.NotEmpty(t, all)
	return all
}

func (r run) String() string { return strings.Join(append([]string{r.model}, r.macros()...), " ") }

// macros returns the arguments that define the switches and variants of the run.
func (r run) macros() (args []string) {
	if r.broken != "" {
		args = append(args, "-D"+r.broken)
	}
	for _, v := range r.variant {
		args = append(args, "-D"+v)
	}
	return args
}

// explore lets Spin generate a verifier, and runs it.
func (r run) explore(t *testing.T) finding {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile(r.model)
	require.NoError(t, err)
	model := filepath.Join(dir, r.model)
	require.NoError(t, os.WriteFile(model, source, 0o644))
	require.NoError(t, os.Chtimes(model, time.Time{}, time.Now().Add(-time.Hour))) // Spin warns of a model that is newer than its trail
	output(t, dir, "spin", append(r.macros(), "-a", r.model)...)
	compile := []string{"-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"}
	depth := "-m1000000"
	switch {
	case r.broken == "" && r.variant == nil:
		compile = append(compile, "-O1") // compiles a second slower, and runs several seconds faster
	case r.broken == "":
	case r.depth == "":
		compile = append(compile, "-DBFS")
	default:
		depth = "-m" + r.depth
	}
	output(t, dir, "gcc", compile...)
	report := output(t, dir, "./pan", "-w20", depth)
	states := regexp.MustCompile(`(?m)^\s*(\d+) states, stored`).FindStringSubmatch(report)
	require.NotNil(t, states, report)
	f := finding{run: r, states: states[1]}
	switch {
	case strings.Contains(report, "assertion violated"):
		trail := output(t, dir, "spin", append(r.macros(), "-t", "-T", "-B", r.model)...)
		steps, _, ended := strings.Cut(trail, "\nspin: ")
		require.True(t, ended, trail)
		f.steps = strings.Split(steps, "\n")
	case r.broken == "":
		require.Contains(t, report, "errors: 0")
		require.NotContains(t, report, "max search depth too small")
		require.NotContains(t, report, "Search not completed")
	}
	return f
}

// output runs a command, which must succeed.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, text)
	return string(text)
}

// render makes RUNS.md.
func render(t *testing.T, version string, found []finding) string {
	t.Helper()
	var table, ways strings.Builder
	for _, f := range found {
		macros, verdict := strings.Join(f.macros(), " "), "holds"
		if f.broken != "" {
			verdict = fmt.Sprintf("broken after %d steps", len(f.steps))
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", f.model, code(macros), f.states, verdict)
		if f.broken == "" {
			continue
		}
		why := switches(t, f.model)[f.broken]
		require.NotEmpty(t, why, "%s says nothing of %s", f.model, f.broken)
		fmt.Fprintf(&ways, "\n## %s: `%s` (%s)\n\n    %s\n", strings.TrimSuffix(f.model, ".pml"), f.broken, why,
			strings.Join(f.steps, "\n    "))
	}
	return fmt.Sprintf(`# What Spin says

%s
explored each model as it is, and with each switch. The states of a broken promise are those until
it was found. The search was breadth first, so the ways are short, if not always the shortest: Spin
counts each statement of a step. It was in depth for `+"`MUTE_EXTENDS`"+` alone. `+"`go test ./spec -update`"+`
writes this page, and the gate compares it.

| Model | Switches | States | The promise |
|---|---|---|---|
%s%s`, version, table.String(), ways.String())
}

func code(text string) string {
	if text == "" {
		return "none"
	}
	return "`" + text + "`"
}
