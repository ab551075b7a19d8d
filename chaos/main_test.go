package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/judge"
	"github.com/redquorum/redquorum/chaos/internal/nemesis"
	"github.com/redquorum/redquorum/internal/need"
)

func TestMain(m *testing.M) {
	if _, is, _ := client.FromEnv(); is {
		os.Exit(run(context.Background()))
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// try runs one scenario for a short time and returns the verdict and the report.
func try(t *testing.T, scenario string, duration time.Duration, args ...string) (*judge.Verdict, string) {
	t.Helper()
	need.Redis(t)
	o, err := parse(append([]string{"--scenario", scenario, "--duration", duration.String(), "--ttl", "1s"}, args...), os.Stderr)
	require.NoError(t, err)
	o.keep = t.TempDir()
	tr := trial{Scenario: o.scenarios[0], options: o}
	v, file, err := tr.run(t.Context())
	require.NoError(t, err)
	var text bytes.Buffer
	report(&text, fmt.Sprintf("%s with seed %d", scenario, o.seed), 0, v)
	t.Log(text.String())

	again, err := readVerdict(file, o.scenarios[0].Wanted())
	require.NoError(t, err)
	assert.Equal(t, v.OK(), again.OK(), "the history in the file is not the one that was judged")
	return v, text.String()
}

func TestThePromisesHoldWhileEverythingIsBroken(t *testing.T) {
	t.Parallel()
	v, _ := try(t, "mixed", 12*time.Second)
	assert.Empty(t, v.Violations)
}

func TestThePromisesHoldWhileMostServersForget(t *testing.T) {
	t.Parallel()
	v, _ := try(t, "restart-majority", 10*time.Second)
	assert.Empty(t, v.Violations)
}

func TestFencingKeepsOutPausedClients(t *testing.T) {
	t.Parallel()
	refused := 0
	for range 3 {
		v, _ := try(t, "pause-clients", 8*time.Second)
		require.Empty(t, v.Violations)
		if refused += v.Refused; refused > 0 {
			return
		}
	}
	t.Error("no paused client ever came back to write: nothing was shown")
}

// The control: a violation that the rules do not find where it must be, they would not find elsewhere.
func TestWithoutTheMemoryGuardTheChecksFindTwoHolders(t *testing.T) {
	t.Parallel()
	for range 3 {
		v, text := try(t, "restart-majority", 7*time.Second, "--no-guard")
		if v.Broken("overlap") > 0 {
			assert.False(t, v.OK())
			assert.Contains(t, text, "VIOLATED  overlap")
			assert.Positive(t, v.Broken("mutex"), "porcupine must see it too")
			return
		}
	}
	t.Error("three of five servers forgot, again and again, and nobody got a lock that was held")
}

func TestAnInterruptedRunIsJudgedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	need.Redis(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	s, _ := nemesis.ByName("mixed")
	dir := t.TempDir()
	tr := trial{Scenario: s, options: options{
		scenarios: []nemesis.Scenario{s}, duration: time.Hour, seed: 1, ttl: time.Second, clients: 2, guard: true, keep: dir,
	}}
	go func() {
		defer interrupt()
		for text := ""; !strings.Contains(text, `"kind":"fault"`) && ctx.Err() == nil; {
			<-time.After(10 * time.Millisecond)
			history, _ := os.ReadFile(filepath.Join(dir, "mixed.jsonl"))
			text = string(history)
		}
	}()
	v, _, err := tr.run(ctx)
	require.NoError(t, err)
	assert.Empty(t, v.Violations)
	assert.Positive(t, v.Granted)
	assert.NotEmpty(t, v.Faults)
}

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--scenario", "earthquake"}, {"now"}, {"--duration", "0s"}, {"--clients", "1"}, {"--ttl", "1ms"}, {"--duration", "9s"}, {"--long-ttl", "1s"}} {
		_, err := parse(args, &bytes.Buffer{})
		assert.Error(t, err, args)
	}
}

func TestAPlanIsPrintedAndNotCarriedOut(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		code, err := runAll(t.Context(), []string{"--plan", "--seed", "5"}, out)
		require.NoError(t, err)
		assert.Zero(t, code)
	}
	assert.Equal(t, first.String(), second.String())
	for _, s := range nemesis.Scenarios {
		assert.Contains(t, first.String(), "\n"+s.Name+": ")
	}
}

func TestAHistoryWithViolationsFailsTheProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	lines := []string{
		`{"at":1,"kind":"asked","who":1,"op":1,"name":"a"}`,
		`{"at":2,"kind":"granted","who":1,"op":1,"name":"a","token":5,"until":99}`,
		`{"at":3,"kind":"accepted","who":1,"op":1,"name":"a","token":5}`,
	}
	write := func() { require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600)) }
	var out bytes.Buffer
	write()
	code, err := runAll(t.Context(), []string{"--judge", path}, &out)
	require.NoError(t, err)
	assert.Zero(t, code, out.String())

	lines = append(lines,
		`{"at":4,"kind":"asked","who":2,"op":1,"name":"a"}`,
		`{"at":5,"kind":"granted","who":2,"op":1,"name":"a","token":6,"until":99}`)
	write()
	code, err = runAll(t.Context(), []string{"--judge", path}, &out)
	require.NoError(t, err)
	assert.Equal(t, violated, code)
	assert.Contains(t, out.String(), "VIOLATED  overlap")
}
