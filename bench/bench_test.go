package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/bench/internal/load"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// testLimit bounds waits; only failing tests reach it.
const testLimit = 30 * time.Second

// TestMain runs the client process, as main does.
func TestMain(m *testing.M) {
	if load.IsClient() {
		os.Exit(load.Main())
	}
	askTimeout = testLimit // a client that connects again would send unexpected commands
	goleak.VerifyTestMain(m)
}

// called returns the program's output and exit code.
type called struct {
	code        int
	out, errors string
}

func call(ctx context.Context, args ...string) called {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return called{code, stdout.String(), stderr.String()}
}

func TestRunIsMeasuredAndShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	got := call(t.Context(), "--duration", "7s", "--rate", "200", "--rounds", "2", "--fault", "kill 1 at 5500ms for 500ms", "--json", in("run.json"), "--svg", in("pictures"))
	require.Zero(t, got.code, got.errors)
	assert.Empty(t, got.errors)
	assert.Contains(t, got.out, "SAY NOTHING ABOUT SPEED")
	assert.FileExists(t, in("pictures/smoke-faults.svg"))

	var run record.Run
	text, err := os.ReadFile(in("run.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &run))
	var order []string
	for i, trial := range run.Trials {
		order = append(order, trial.Subject)
		assert.Equal(t, i/2, trial.Round)
		assert.Positive(t, trial.Cycles)
		assert.Zero(t, trial.Violations, trial.Violation)
		assert.GreaterOrEqual(t, trial.Checked, trial.Cycles)
		require.NotNil(t, trial.Fault)
		assert.Equal(t, "kill 1 of 5", trial.Fault.What)
		assert.Positive(t, trial.Fault.Before.Count())
		assert.Len(t, trial.Fault.Slices, 70)
		assert.Len(t, trial.Commands, 5)
	}
	assert.Equal(t, "redquorum redsync redsync redquorum", strings.Join(order, " "), "each round begins with another")
}

func TestUnbreakableNodesEndTheRun(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--subjects", "bsm", "--duration", "1h", "--fault", "kill 1 at 1ms for 1ms"})
	require.NoError(t, err)
	nodes, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 5})
	require.NoError(t, err)
	require.NoError(t, nodes.Close()) // the nodes have ended, so none can be killed
	_, err = o.trial(t.Context(), load.Job{Subject: "bsm", URLs: nodes.URLs(), Load: o.load}, nodes, nil)
	assert.ErrorContains(t, err, "kill 1")
}

func TestTwoHoldersOfOurLockFailTheRun(t *testing.T) {
	t.Parallel()
	run := record.Run{}
	for _, name := range []string{"redquorum-fenced", "redsync"} {
		run.Trials = append(run.Trials, record.Trial{Subject: name, Checked: 10, Violations: 2, Violation: "callers 1 and 2"})
	}
	assert.Equal(t, []string{"redquorum-fenced: 2 pairs of holders of one lock at one time, of 10 checked: callers 1 and 2"}, doubleHolders(run))
	assert.Empty(t, doubleHolders(record.Run{}))
}

func TestCostsMatchTheLoad(t *testing.T) {
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 2, Volatile: true})
	watch, err := connect(f.URLs())
	require.NoError(t, err)
	defer watch.close()
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	answered := func() (i info) { // waits for both nodes, because a busy machine may answer after the time limit of a question
		require.Eventually(t, func() bool { i = watch.info(t.Context()); return i[0] != nil && i[1] != nil }, testLimit, time.Millisecond)
		return i
	}
	before := answered()
	assert.Regexp(t, `^(redis|valkey) \d+\.\d+\.\d+$`, before.version())
	for range 100 {
		_, err := c.Do("EVAL", `return redis.call("SETRANGE", KEYS[1], 9999999, "v")`, 1, "bench:key")
		require.NoError(t, err)
	}
	after := answered()
	assert.Equal(t, []int64{200, 0}, commands(before, after))
	assert.InEpsilon(t, 5_000_000, memory(before, after), 0.1, "on average")
	require.NoError(t, f.Kill(t.Context(), 0))
	assert.Zero(t, commands(before, watch.info(t.Context()))[0], "dead")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Lost))
	assert.Zero(t, commands(before, answered())[0], "restarted")
}

func TestFlagsOverrideTheScenario(t *testing.T) {
	t.Parallel()
	for _, name := range scenarioNames() {
		o, err := parse([]string{"--scenario", name, "--nodes", "process", "--rounds", "7"})
		require.NoError(t, err)
		assert.Equal(t, "redquorum", o.specs[0].Name, "%s: the others are compared with it", name)
		assert.Equal(t, []int{5, 7}, []int{o.load.Nodes, o.rounds}, name)
		assert.Regexp(t, `^[A-Z].*\.$`, o.about, name)
	}
	o, err := parse([]string{"--scenario", "turns", "--hold", "0s"})
	require.NoError(t, err)
	assert.Equal(t, "single", o.load.Names)
	assert.Zero(t, o.load.Hold)
}

func TestInvalidFlagsAreReported(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--bogus":                    "--help",
		"kill":                       "unexpected argument",
		"--scenario nothing":         "smoke",
		"--subjects bsm,redsync,bsm": "bsm is duplicated",
		"--rounds 0":                 "--rounds",
		"--callers 3 --processes 4":  "--processes 4",
		"--scenario pause --n 1":     "there are 1 nodes",
		"--nodes docker":             "specify embedded or process",
		"--durable":                  "--durable",
		"--held 10":                  "--held",
		"--subjects limit":           "limit has no locks",
		"--document x.md --rounds 1": "--document",
	} {
		got := call(t.Context(), strings.Fields(args)...)
		assert.Equal(t, exitUsage, got.code, args)
		assert.Contains(t, got.errors, want, args)
		assert.Equal(t, 1, strings.Count(got.errors, "\n"), args)
	}
	trial := record.Load{Nodes: 5, Duration: 20 * time.Second}
	got, err := parseFault("kill 2 at 5s for 6s", trial)
	require.NoError(t, err)
	assert.Equal(t, fault{"kill", 2, 5 * time.Second, 6 * time.Second}, got)
	for _, line := range []string{"", "burn 2 at 5s for 5s", "kill 0 at 5s for 5s", "kill 2 for 5s", "kill 2 at 5s for 5s in 5s", "kill 6 at 5s for 5s", "kill 1 at 15s for 5s"} {
		_, err := parseFault(line, trial)
		assert.Error(t, err, line)
	}
}

func TestPageGetsTheFiguresOfItsCommands(t *testing.T) {
	t.Parallel()
	const command = "    go -C bench run . --subjects bsm,redsync --scenario single --rounds 1"
	const fails = "    go -C bench run . --n 100 --rounds 1\n\n<!-- figures -->\nkept\n<!-- end -->\n\n"
	const begin = "# Figures\n\nMeasured: never\n\n" + fails + command + "\n\n<!-- figures -->\n"
	const end = "<!-- end -->\n\n![What it shows](pictures/single-latency.svg)\n\n| Another | table |\n"
	dir := t.TempDir()
	file := filepath.Join(dir, "file.md")
	require.NoError(t, os.WriteFile(file, []byte(begin+"\n| old |\n|---|\n\n"+end), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pictures"), 0o755))
	got := call(t.Context(), "--document", file)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errors, "--n 100 --rounds 1: ")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "old")
	assert.Contains(t, string(text), fails, "the old figures")
	assert.NotContains(t, string(text), "Measured: never")
	assert.Regexp(t, `<!-- figures -->\n\n\|  \| .*\n\| --- \|.*\n\| bsm.*\n\| redsync .*\|\n\n<!-- end`, string(text))
	assert.True(t, strings.HasSuffix(string(text), end), string(text))
	assert.FileExists(t, filepath.Join(dir, "pictures/single-latency.svg"))
}

// TestCommandsOfPagesAreValid: flags, scenarios and subjects exist, and the benchmarks' page has real
// servers.
func TestCommandsOfPagesAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	for _, c := range documents.Commands(t) {
		args, ours := c.Calls("go -C bench run .")
		if !ours || args[0] == "--help" {
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
