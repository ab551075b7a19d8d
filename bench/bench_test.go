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

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

func TestARunIsMeasuredAndShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	// A long TTL makes votes wait longer for slow nodes, too. Without the guard it costs no quarantine.
	got := call(t.Context(), "--scenario", "smoke", "--subjects", "redquorum-noguard,redsync", "--ttl", "1m", "--duration", "700ms", "--warmup", "50ms",
		"--fault", "pause 1 at 200ms for 200ms", "--profile", in("profiles"), "--json", in("run.json"), "--svg", in("pictures"))
	require.Zero(t, got.code, got.errors)
	assert.Empty(t, got.errors)
	assert.Contains(t, got.out, "smoke: A little of everything")
	assert.Contains(t, got.out, "SAY NOTHING OF SPEED")

	run := readRun(t, in("run.json"))
	assert.Equal(t, "smoke", run.Scenario)
	assert.Equal(t, "embedded", run.Machine.Nodes)
	require.Len(t, run.Subjects, 2)
	require.Len(t, run.Trials, 2)
	for i, trial := range run.Trials {
		assert.Equal(t, run.Subjects[i].Name, trial.Subject)
		assert.Equal(t, 2, trial.Load.Processes)
		assert.Positive(t, trial.Cycles)
		assert.Zero(t, trial.Violations, trial.Violation)
		assert.GreaterOrEqual(t, trial.Checked, trial.Cycles)
		require.NotNil(t, trial.Fault)
		assert.Equal(t, "pause 1 of 5", trial.Fault.What)
		assert.Positive(t, trial.Fault.Before.Count())
		require.Len(t, trial.Nodes, 5)
		assert.Len(t, trial.Slices, 7)
		assert.Empty(t, trial.Millis)
		assert.FileExists(t, in("profiles/"+trial.Subject+".pprof"))
	}
	assert.FileExists(t, in("pictures/smoke-faults.svg"))
}

// readRun reads what --json has written.
func readRun(t *testing.T, file string) (run record.Run) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &run))
	return run
}

func TestRoundsBeginWithEachInTurn(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run.json")
	got := call(t.Context(), short("--subjects", "bsm,limit", "--rounds", "2", "--sweep", "nodes=1,3", "--json", out)...)
	require.Zero(t, got.code, got.errors)
	var order []string
	for i, trial := range readRun(t, out).Trials {
		assert.Equal(t, i%4/2, trial.Round)
		assert.Equal(t, []int{1, 3}[i/4], len(trial.Nodes), trial.Load.Point)
		order = append(order, trial.Subject)
	}
	assert.Equal(t, "bsm limit limit bsm bsm limit limit bsm", strings.Join(order, " "))
}

func TestWhatCannotBeMeasuredEndsTheRun(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"bench: redquorum: load: client process 1 of 1: redquorum: redlock: option TTL(9000h0m0s)": {"--subjects", "bsm,redquorum", "--ttl", "9000h"},
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
	b := opened(t, short("--subjects", "bsm", "--duration", "1h", "--fault", "kill 1 at 1ms for 1ms")...)
	require.NoError(t, b.nodes.Close()) // so that none can be killed
	err := b.measure(t.Context(), b.load)
	require.ErrorContains(t, err, "bsm: ")
	require.ErrorContains(t, err, "kill 1")
	assert.Empty(t, b.run.Trials)
}

// opened is a bench on its nodes.
func opened(t *testing.T, args ...string) *bench {
	t.Helper()
	o := parsed(t, args...)
	b := &bench{options: o, run: &record.Run{}, progress: func(string) {}}
	require.NoError(t, b.ready(t.Context(), o.load.Nodes))
	t.Cleanup(func() { assert.NoError(t, b.close()) })
	return b
}

func TestGivenServersAreMeasuredAndLeftAsTheyWere(t *testing.T) {
	t.Parallel()
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 2})
	require.NoError(t, err)
	defer f.Close()
	got := call(t.Context(), short("--nodes", f.URLs()[0]+","+f.URLs()[1], "--subjects", "bsm", "--names", "single")...)
	assert.Zero(t, got.code, got.errors)
	assert.Contains(t, got.out, "addrs nodes")
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	left, err := redis.Strings(c.Do("KEYS", "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestTheEndOfTheContextEndsTheRun(t *testing.T) {
	t.Parallel()
	profiles := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan called, 1)
	go func() {
		done <- call(ctx, short("--subjects", "bsm,redsync", "--processes", "2", "--duration", "1h",
			"--fault", "pause 2 at 1ms for 59m", "--profile", profiles)...)
	}()
	require.Eventually(t, func() bool { // the load has begun, and soon the fault
		files, _ := filepath.Glob(filepath.Join(profiles, "*"))
		return len(files) > 0
	}, testLimit, 10*time.Millisecond)
	cancel(errors.New("enough of it"))
	select {
	case got := <-done: // and goroutines that are left fail the package
		assert.Equal(t, exitFailed, got.code)
		assert.Equal(t, "bench: enough of it\n", got.errors)
		assert.Empty(t, got.out)
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
	assert.Equal(t, []string{"redquorum-fenced: 2 pairs of holders of one lock at one time, of 10 checked: callers 1 and 2"}, doubleHolders(run), "others are shown only")
	assert.Empty(t, doubleHolders(record.Run{}))
	assert.Equal(t, []int{1, 2, 64}, []int{exitFailed, exitHolders, exitUsage}, "what scripts rely on")
}

func TestAFileThatCannotBeWrittenCostsNothingElse(t *testing.T) {
	t.Parallel()
	trial := record.Trial{Subject: "bsm", Cycles: 1, Load: record.Load{Duration: time.Second}, Outcomes: map[string]int64{record.OK: 1}}
	trial.Acquire.Add(time.Millisecond)
	run := record.Run{Scenario: "quick", Subjects: []record.Subject{{Name: "bsm", Title: "bsm"}}, Trials: []record.Trial{trial}}
	dir := t.TempDir()
	var out bytes.Buffer
	o := options{json: filepath.Join(dir, "no", "run.json"), svg: filepath.Join(dir, "pictures")}
	require.ErrorContains(t, o.show(&out, run), "run.json")
	assert.Contains(t, out.String(), "bsm")
	assert.FileExists(t, filepath.Join(dir, "pictures", "quick-latency.svg"))
}
