package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/judge"
	"github.com/redquorum/redquorum/chaos/internal/nemesis"
	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/testenv"
)

func TestMain(m *testing.M) {
	if is, err := client.Main(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(unable)
		}
		return
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
	testenv.NeedRedis(t)
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

// most is the maximum number of tries of a run that must show an effect: on a busy machine the faults
// leave little time for locks.
const most = 10

func TestPromisesHold(t *testing.T) {
	t.Parallel()
	kinds, refused := map[history.Lock]bool{}, 0
	for _, c := range []struct {
		scenario string
		duration time.Duration
		shows    func(*judge.Verdict) bool
		args     []string
	}{
		{"mixed", 12 * time.Second, func(v *judge.Verdict) bool {
			for l := range v.Of {
				kinds[l] = true
			}
			return len(kinds) == len(history.Locks)
		}, nil},
		{"restart-majority", 10 * time.Second, func(*judge.Verdict) bool { return true }, nil},
		{"fail-over", 12 * time.Second, func(*judge.Verdict) bool { return true }, nil},
		{"fail-over-and-back", 12 * time.Second, func(*judge.Verdict) bool { return true }, nil},
		{"late", 8 * time.Second, func(*judge.Verdict) bool { return true }, nil},
		{"stop-anywhere", 12 * time.Second, func(v *judge.Verdict) bool { return v.Of[history.Fenced] > 0 }, []string{"--ttl", "2s"}},
		{"serve", 12 * time.Second, func(v *judge.Verdict) bool { return v.Seen["over HTTP"] > 0 }, nil},
		{"pause-clients", 8 * time.Second, func(v *judge.Verdict) bool { // fencing refuses the writes of clients that resume
			refused += v.Refused
			return refused > 0
		}, nil},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			for range most {
				v, text := try(t, c.scenario, c.duration, c.args...)
				require.Empty(t, v.Violations)
				for l, n := range v.Of {
					assert.Contains(t, text, fmt.Sprint(n, " ", l))
				}
				if c.shows(v) {
					return
				}
			}
			t.Error("it did not show what it has to")
		})
	}
}

// The control: rules that miss a certain violation would miss others too.
func TestChecksFindTwoHoldersWithoutTheMemoryGuard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ locks, says string }{
		{"fenced,shared", "(shared)"},
		{"permit,fenced-permit", "(permit)"},
	} {
		t.Run(c.locks, func(t *testing.T) {
			t.Parallel()
			for n := range most {
				// // If a busy machine restarts a majority slower than locks expire, no lock is
				// granted twice, so every // second run has a long TTL.
				ttl := []time.Duration{time.Second, 3 * time.Second}[n%2]
				v, _ := try(t, "restart-majority", 8*ttl, "--ttl", ttl.String(), "--no-guard", "--clients", "6", "--locks", c.locks)
				found := slices.ContainsFunc(v.Violations, func(f judge.Violation) bool {
					return f.Rule == "overlap" && strings.Contains(f.Text, c.says)
				})
				if found {
					assert.False(t, v.OK())
					return
				}
			}
			t.Error("three of five servers forgot, again and again, and nobody got a lock that was held")
		})
	}
}

func TestFalseClaimOfAProgramIsFound(t *testing.T) {
	t.Parallel()
	const liar = `echo; exec cat` + " #" // this program grants every lock at once
	v, text := try(t, "kill-clients", 6*time.Second, "--ttl", "300ms", "--nodes", "1", "--client", liar)
	assert.Positive(t, v.Broken("overlap"))
	assert.Positive(t, v.Notice)
	assert.Positive(t, v.Broken("register"), "the resource sees it, whatever clients say")
	assert.Contains(t, text, "client    echo; exec cat")
}

// A holder that resumes after a pause deletes the key of the next holder, unless its release compares.
// It still writes after the pause, which no lock without tokens can prevent.
func TestReleaseWithoutComparisonIsFound(t *testing.T) {
	t.Parallel()
	args := []string{"--ttl", "300ms", "--nodes", "1", "--clients", "6", "--client"}
	v, _ := try(t, "pause-clients", 3*time.Second, append(args, "setnx-best")...)
	assert.Len(t, v.Violations, v.Broken("register"), "the control")
	for range most {
		if v, _ := try(t, "pause-clients", 3*time.Second, append(args, "setnx-careless")...); v.Broken("overlap") > 0 {
			return
		}
	}
	t.Error("locks of others were deleted, and nobody got one that was held")
}

func TestRunWithoutItsProgramEndsWithTheReason(t *testing.T) {
	t.Parallel()
	testenv.NeedRedis(t)
	o, err := parse([]string{"--scenario", "flush", "--duration", "1h", "--client", "exec no-such-program"}, os.Stderr)
	require.NoError(t, err)
	o.keep = t.TempDir()
	tr := trial{Scenario: o.scenarios[0], options: o}
	_, _, err = tr.run(t.Context())
	assert.ErrorContains(t, err, `the program cannot be run: "exec no-such-program"`)
}

func TestInterruptedRunIsJudgedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	testenv.NeedRedis(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	s, _ := nemesis.ByName("mixed")
	dir := t.TempDir()
	tr := trial{Scenario: s, options: options{
		scenarios: []nemesis.Scenario{s}, duration: time.Hour, seed: 1, ttl: time.Second, clients: 2, nodes: 5, locks: history.Locks, keep: dir,
	}}
	go func() {
		defer interrupt()
		for text := ""; !(strings.Contains(text, `"kind":"fault"`) && strings.Contains(text, `"kind":"granted"`)) && ctx.Err() == nil; {
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

func TestKeysOfLocksDifferFromPermanentKeys(t *testing.T) {
	t.Parallel()
	locks := []string{"a", "redlock:permit:1:{p}", "redlock:readers:{a}", "redlock:intent:{a}"}
	stay := []string{"redlock:epoch", "redlock:primary", "redlock:fence:{a}", "redlock:fence:[redlock:permit:1:{p}]", "redlock:queue:{a}", "redlock:queue:{a}:seen", "redlock:permit:of:{p}"}
	assert.Equal(t, locks, left(append(stay, locks...)))
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--scenario", "earthquake"}, {"now"}, {"--duration", "0s"}, {"--clients", "1"}, {"--ttl", "1ms"}, {"--duration", "9s"}, {"--locks", "padlock"}, {"--locks", ""}, {"--locks", "plain,plain"},
		{"--scenario", "fail-over", "--client", "true"}, {"--scenario", "fail-over", "--no-guard"}, {"--nodes", "0"}, {"--client", "true", "--locks", "plain"}, {"--client", "true", "--no-guard"}} {
		_, err := parse(args, &bytes.Buffer{})
		assert.Error(t, err, args)
	}
}

func TestReplayHasTheOptionsOfItsRun(t *testing.T) {
	t.Parallel()
	args := []string{"--scenario", "flush,proxy", "--duration", "20s", "--seed", "7", "--nodes", "3", "--client", "echo 'a b'", "--keep", "x"}
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	tr := trial{Scenario: o.scenarios[1], options: o}
	assert.Equal(t, 10*time.Second, tr.setting().Duration)
	assert.Equal(t, `go -C chaos run . --scenario=proxy --duration=10s --seed=7 --client='echo '\''a b'\''' --nodes='3'`, tr.replay())
}

// The history is from SET NX PX by redis-cli with paused clients. It has one overlap.
func TestViolationsFailTheProgram(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code, err := runAll(t.Context(), []string{"--judge", "testdata/setnx.jsonl"}, &out)
	require.NoError(t, err)
	assert.Equal(t, violated, code)
	assert.Contains(t, out.String(), "checks    overlap 1, fencing ok, register ok, leftover ok, evidence ok")
	assert.Contains(t, out.String(), `client 5's acquisition 2 (plain) was granted the lock 14.3ms before client 1's acquisition 1 (plain)`)

	whole, err := os.ReadFile("testdata/setnx.jsonl")
	require.NoError(t, err)
	begin := filepath.Join(t.TempDir(), "history")
	require.NoError(t, os.WriteFile(begin, bytes.Join(bytes.SplitAfter(whole, []byte("\n"))[:40], nil), 0o600))
	code, err = runAll(t.Context(), []string{"--judge", begin}, &out)
	require.NoError(t, err)
	assert.Zero(t, code, out.String())
}

// TestCommandsInDocumentsAreValid: each command line has valid flags, scenarios and kinds of lock.
func TestCommandsInDocumentsAreValid(t *testing.T) {
	parsed := 0
	for _, c := range documents.Commands(t) {
		if args, ours := c.Calls("go -C chaos run ."); ours {
			parsed++
			_, err := parse(args, io.Discard)
			assert.NoError(t, err, c.Place())
		}
	}
	assert.Positive(t, parsed)
}
