package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// testLimit bounds waits; only failing tests reach it.
const testLimit = 30 * time.Second

// TestMain is the client process too, as main is.
func TestMain(m *testing.M) {
	if load.IsClient() {
		os.Exit(load.Main())
	}
	goleak.VerifyTestMain(m)
}

// called is the program's output and exit code.
type called struct {
	code        int
	out, errors string
}

func call(ctx context.Context, args ...string) called {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return called{code, stdout.String(), stderr.String()}
}

// short are flags for a trial that measures next to nothing. Flags after them override them.
func short(args ...string) []string {
	return append([]string{"--callers", "2", "--rounds", "1", "--duration", "50ms", "--warmup", "0s"}, args...)
}

func TestRunIsMeasuredAndShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	// With a long TTL votes wait longer for slow nodes. Without the guard it costs no quarantine.
	got := call(t.Context(), "--scenario", "smoke", "--subjects", "redquorum-noguard,redsync", "--ttl", "1m", "--duration", "3s",
		"--fault", "pause 1 at 1500ms for 500ms", "--json", in("run.json"), "--svg", in("pictures"))
	require.Zero(t, got.code, got.errors)
	assert.Empty(t, got.errors)
	assert.Contains(t, got.out, "smoke: A little of everything")
	assert.Contains(t, got.out, "SAY NOTHING ABOUT SPEED")

	run := readRun(t, in("run.json"))
	require.Len(t, run.Trials, 2)
	for i, trial := range run.Trials {
		assert.Equal(t, run.Subjects[i].Name, trial.Subject)
		assert.Positive(t, trial.Cycles)
		assert.Zero(t, trial.Violations, trial.Violation)
		assert.GreaterOrEqual(t, trial.Checked, trial.Cycles)
		require.NotNil(t, trial.Fault)
		assert.Equal(t, "pause 1 of 5", trial.Fault.What)
		assert.Positive(t, trial.Fault.Before.Count())
		assert.Len(t, trial.Fault.Slices, 30)
		require.Len(t, trial.Nodes, 5)
	}
	assert.FileExists(t, in("pictures/smoke-faults.svg"))
}

func readRun(t *testing.T, file string) (run record.Run) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &run))
	return run
}

func TestEachRoundBeginsWithAnotherSubject(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run.json")
	got := call(t.Context(), short("--subjects", "bsm,limit", "--rounds", "2", "--n", "3", "--json", out)...)
	require.Zero(t, got.code, got.errors)
	var order []string
	for i, trial := range readRun(t, out).Trials {
		assert.Equal(t, i/2, trial.Round)
		assert.Len(t, trial.Nodes, 3)
		order = append(order, trial.Subject)
	}
	assert.Equal(t, "bsm limit limit bsm", strings.Join(order, " "))
}

func TestFailuresEndTheRun(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"bench: redquorum: client process 1 of 1: redlock: option TTL(9000h0m0s)": {"--subjects", "bsm,redquorum", "--ttl", "9000h"},
		"Nodes = 100": {"--subjects", "bsm", "--n", "100"},
	} {
		got := call(t.Context(), short(args...)...)
		assert.Equal(t, exitFailed, got.code)
		assert.Contains(t, got.errors, says)
		assert.Empty(t, got.out)
	}
}

func TestNodesThatCannotBeBrokenEndTheRun(t *testing.T) {
	t.Parallel()
	o, err := parse(short("--subjects", "bsm", "--duration", "1h", "--fault", "kill 1 at 1ms for 1ms"))
	require.NoError(t, err)
	nodes, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 5})
	require.NoError(t, err)
	require.NoError(t, nodes.Close()) // none can be killed
	_, err = o.trial(t.Context(), "bsm", nodes, nil)
	assert.ErrorContains(t, err, "kill 1")
}

func TestGivenServersKeepNoLocks(t *testing.T) {
	t.Parallel()
	f := need.Servers(t, fleet.Embedded, fleet.Options{Nodes: 2})
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	foreign := []string{"invoice:42", "benchmark", "redlock:epoch", "other:0:bench:1"}
	for _, key := range append(foreign, "bench:stayed:behind") {
		_, err := c.Do("SET", key, "value")
		require.NoError(t, err)
	}
	got := call(t.Context(), short("--nodes", f.URLs()[0]+","+f.URLs()[1], "--subjects", "bsm", "--names", "single")...)
	assert.Zero(t, got.code, got.errors)
	assert.Contains(t, got.out, "addrs nodes")
	left, err := redis.Strings(c.Do("KEYS", "*"))
	require.NoError(t, err)
	assert.ElementsMatch(t, foreign, left)
}

func TestContextEndsTheRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	f := need.Servers(t, fleet.Embedded, fleet.Options{Nodes: 1})
	done := make(chan called, 1)
	go func() {
		done <- call(ctx, short("--nodes", f.URLs()[0], "--subjects", "bsm,redsync", "--processes", "2", "--duration", "1h")...)
	}()
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool { // the load has begun
		found, err := redis.Strings(c.Do("KEYS", "bench:*"))
		return err == nil && len(found) > 0
	}, testLimit, time.Millisecond)
	cancel(errors.New("enough"))
	select {
	case got := <-done:
		assert.Equal(t, called{exitFailed, "", "bench: enough\n"}, got)
	case <-time.After(testLimit):
		t.Fatal("it goes on")
	}
}

func TestTwoHoldersOfOurLockFailTheRun(t *testing.T) {
	t.Parallel()
	run := record.Run{}
	for _, name := range []string{"redquorum-fenced", "redquorum-noguard", "redsync"} {
		run.Trials = append(run.Trials, record.Trial{Subject: name, Checked: 10, Violations: 2, Violation: "callers 1 and 2"})
	}
	assert.Equal(t, []string{"redquorum-fenced: 2 pairs of holders of one lock at one time, of 10 checked: callers 1 and 2"}, doubleHolders(run))
	assert.Empty(t, doubleHolders(record.Run{}))
	assert.Equal(t, []int{1, 2, 64}, []int{exitFailed, exitHolders, exitUsage}, "scripts rely on them")
}

func TestCostsAreThoseOfTheLoad(t *testing.T) {
	f := need.Servers(t, fleet.Process, fleet.Options{Nodes: 2, Volatile: true})
	watch, err := connect(f.URLs())
	require.NoError(t, err)
	defer watch.close()
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	do := func(command string, args ...any) {
		_, err := c.Do(command, args...)
		require.NoError(t, err)
	}
	answered := func() (i info) { // both nodes: a busy machine may take longer than a question may
		require.Eventually(t, func() bool { i = watch.info(t.Context()); return i[0] != nil && i[1] != nil }, testLimit, time.Millisecond)
		return i
	}
	before := answered()
	assert.Regexp(t, `^(redis|valkey) \d+\.\d+\.\d+$`, before.version())
	for range 100 {
		do("SET", "bench:key", "value", "PX", 60_000)
		do("EVAL", `return redis.call("GET", KEYS[1])`, 1, "bench:key")
	}
	do("SETRANGE", "bench:long", 9_999_999, "v")
	after := answered()
	all := costs(before, after)
	assert.Equal(t, map[string]int64{"set": 100, "eval": 100, "get": 100, "setrange": 1}, all[0].Commands)
	assert.Equal(t, map[string]int64{}, all[1].Commands)
	assert.InEpsilon(t, 5_000_000, memory(before, after), 0.1, "on average")

	require.NoError(t, f.Kill(t.Context(), 0))
	assert.Equal(t, record.NodeCosts{}, costs(before, watch.info(t.Context()))[0], "dead")
	require.ErrorContains(t, watch.clean(t.Context()), "node 1 (127.0.0.1:")
	require.NoError(t, f.Restart(t.Context(), 0, fleet.Lost))
	assert.Equal(t, record.NodeCosts{}, costs(before, answered())[0], "restarted")
}
