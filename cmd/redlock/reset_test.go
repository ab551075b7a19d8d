package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// guarded is a client with the memory guard. Its TTL is long, so that a wait for a quarantine differs
// from a slow answer.
func guarded(t *testing.T, urls []string) *redlock.Locker {
	t.Helper()
	nodes, err := pool.OpenWith(urls, patient...)
	tr.NoError(t, err)
	l, err := redlock.New(nodes, redlock.TTL(endless), redlock.NodeTimeout(endless/4))
	tr.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// locksAtOnce lets a new client take a lock, and fails if it has to wait for a quarantine.
func locksAtOnce(t *testing.T, urls []string, opts ...redlock.Option) {
	t.Helper()
	lockNow(t, guarded(t, urls), opts...)
}

func lockNow(t *testing.T, l *redlock.Locker, opts ...redlock.Option) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endless/2)
	defer cancel()
	began := time.Now()
	lock, err := l.Acquire(ctx, "at once", opts...)
	tr.NoError(t, err)
	t.Logf("locked after %v", time.Since(began))
	tr.NoError(t, lock.Release(t.Context()))
}

// reset runs the command with --yes. It repeats the command if a client that won its lock with a
// quorum is still writing to another server.
func reset(t *testing.T, urls []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for _, u := range urls {
		args = append(args, "--node", u)
	}
	for range 10 {
		code, stdout, stderr = redlockCommand(t, append([]string{"reset", "--yes", "--dial-timeout", "10s"}, args...)...)
		if !strings.Contains(stderr, errChanged.Error()) {
			break
		}
	}
	return code, stdout, stderr
}

// readRecord returns a server's record.
func readRecord(t *testing.T, url string) *record.Record {
	t.Helper()
	r, err := record.Parse(has(t, url, record.Key))
	tr.NoError(t, err)
	return r
}

// If no client accepts the records of three of five servers, the outage does not end by itself.
func TestResetReplacesRecordsThatBlockAllLocks(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 5)
	urls := f.URLs()
	first := guarded(t, urls)
	code, out, errs := reset(t, urls)
	_, err := first.TryAcquire(t.Context(), "first") // at once
	tr.NoError(t, err)
	tr.Zero(t, code, errs)
	assert.Contains(t, out, "5 of 5 servers have a new record")
	locksAtOnce(t, urls) // although the servers are new
	locksAtOnce(t, urls, redlock.Fenced())

	running := guarded(t, urls)
	kept, err := running.Acquire(t.Context(), "kept")
	tr.NoError(t, err)
	year := func(change func(r *record.Record, now time.Duration)) func(url string) {
		return func(url string) {
			r := readRecord(t, url)
			change(r, time.Duration(time.Now().UnixMilli())*time.Millisecond)
			ask(t, url, "SET", record.Key, r.String(), "PX", (record.DrawLife() + time.Hour).Milliseconds())
		}
	}
	for _, damage := range []struct {
		name   string
		begin  func(url string)
		doctor string // what it says
		client string // part of the client's error
	}{
		{"garbage", func(url string) { ask(t, url, "SET", record.Key, "\x1b[2Jgarbage @ \xff") }, "is invalid", "redlock reset"},
		{"another type", func(url string) {
			// The record is replaced in one step, because the running client would write a missing
			// record.
			ask(t, url, "EVAL", `redis.call("DEL", KEYS[1]) return redis.call("HSET", KEYS[1], "f", "v")`, 1, record.Key)
		}, "is not a string", record.Key},
		{"a quarantine of a year", year(func(r *record.Record, now time.Duration) {
			r.Born, r.Forgot, r.Basis = now, 365*24*time.Hour, record.Asked
		}), "in quarantine for another 87", "may have forgotten"},
		{"a TTL of a year, and servers that were flushed", func(url string) {
			if url != urls[2] {
				year(func(r *record.Record, now time.Duration) {
					r.Steps = []record.Step{{TTL: 365 * 24 * time.Hour, Entered: 0, Used: now}}
				})(url)
				return
			}
			for _, u := range urls[2:] {
				ask(t, u, "FLUSHALL")
			}
		}, "", "may have forgotten"},
	} {
		t.Run(damage.name, func(t *testing.T) {
			begin := func() {
				for _, u := range urls[:3] {
					damage.begin(u)
				}
			}
			begin()
			if damage.client == "redlock reset" {
				_, err := running.TryAcquire(t.Context(), "stopped")
				assert.ErrorContains(t, err, damage.client)
			}
			if damage.client != "" {
				var r doctor.Report
				try := 0
				eventually(t, "a fatal finding", func() bool {
					try++
					_, err := guarded(t, urls).TryAcquire(t.Context(), fmt.Sprint("try ", try)) // a new name: the last is being released
					code, report := examineURLs(t, urls)
					if r = report; code == exitDoctorFatal {
						tr.ErrorIs(t, err, redlock.ErrNoQuorum)
						assert.ErrorContains(t, err, damage.client)
						return true
					}
					begin() // because a late answer made the running client replace a record
					return false
				})
				text := fmt.Sprint(r)
				assert.Contains(t, text, damage.doctor)
				assert.Contains(t, text, "redlock reset", "the command that cures it")
				assert.GreaterOrEqual(t, r.Verdict, doctor.Warning)
			}
			code, out, errs := reset(t, urls)
			tr.Zero(t, code, errs)
			assert.NotContains(t, out, "\x1b")
			for _, u := range urls {
				r := readRecord(t, u)
				assert.Equal(t, 5, r.Nodes)
				assert.Zero(t, r.Forgot)
				assert.Equal(t, record.Proof, r.Basis)
				for _, step := range r.Steps {
					assert.Equal(t, endless, step.TTL, "of the client that goes on, which may have come already")
				}
				assert.Positive(t, ask(t, u, "PTTL", record.Key))
			}
			locksAtOnce(t, urls)
			lockNow(t, running)
			if damage.name != "a TTL of a year, and servers that were flushed" {
				assert.NoError(t, kept.Extend(t.Context()), "locks stay")
			}
		})
	}
}

func TestResetChangesTheNumberOfServers(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 5)
	urls := f.URLs()
	code, _, errs := reset(t, urls)
	tr.Zero(t, code, errs)
	locksAtOnce(t, urls)
	_, err := guarded(t, urls[:3]).TryAcquire(t.Context(), "x")
	tr.ErrorIs(t, err, redlock.ErrSettings)
	assert.ErrorContains(t, err, "redlock reset")

	code, out, errs := reset(t, urls[:3])
	tr.Zero(t, code, errs)
	assert.Contains(t, out, "3 of 3")
	locksAtOnce(t, urls[:3])
	_, err = guarded(t, urls).TryAcquire(t.Context(), "x")
	assert.ErrorIs(t, err, redlock.ErrSettings, "clients that were not stopped have no quorum")
}

func TestResetShowsItsRisksAndRequiresConfirmation(t *testing.T) {
	t.Parallel()
	onKinds(t, 3, func(t *testing.T, f fleet.Fleet) {
		reset(t, f.URLs())
		before := has(t, f.URLs()[0], record.Key)
		put(t, f.URLs()[:3], "nightly", "v")
		code, out, errs := redlockCommand(t, on(f, "reset")...)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, errs, "--yes")
		assert.Contains(t, out, "Locks that are held, 1: nightly.")
		assert.Contains(t, out, "over", "the quarantine")
		assert.Contains(t, out, "ago")
		for i := range resetShown {
			put(t, f.URLs()[i%3:i%3+1], fmt.Sprint("job:", i), "v")
		}
		_, out, _ = redlockCommand(t, on(f, "reset")...)
		assert.Contains(t, out, "Locks that are held, 11: job:0, ")
		assert.Contains(t, out, "and 1 more")
		_, out, _ = redlockCommand(t, on(f, "reset", "--prefix", "job:")...)
		assert.Contains(t, out, "held, 10: 0, 1,")
		assert.Contains(t, out, "it has no record")
		assert.Equal(t, before, has(t, f.URLs()[0], record.Key))
	})
}

func TestResetReportsItsFailures(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 5)
	urls := f.URLs()
	reset(t, urls)
	tr.NoError(t, f.Kill(t.Context(), 4))
	before := has(t, urls[0], record.Key)
	code, out, errs := reset(t, urls)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, out, "4 of 5 servers have a new record")
	assert.Contains(t, errs, "NOT COMPLETE: 1 of 5")
	assert.Contains(t, errs, strings.TrimPrefix(urls[4], "redis://")+": ")
	assert.Contains(t, errs, "run redlock reset again")
	assert.NotEqual(t, before, has(t, urls[0], record.Key))
	locksAtOnce(t, urls)

	for i := range 2 {
		tr.NoError(t, f.Kill(t.Context(), i))
	}
	before = has(t, urls[3], record.Key)
	code, _, errs = reset(t, urls)
	assert.Equal(t, exitNoQuorum, code)
	assert.Contains(t, errs, "2 of 5 servers answered")
	assert.Contains(t, errs, "nothing was changed")
	assert.Equal(t, before, has(t, urls[3], record.Key))
}

// A record that a client writes between the question and the answer was not shown.
func TestResetReplacesOnlyShownRecords(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 5)
	urls := f.URLs()
	ask(t, urls[2], "HSET", record.Key, "f", "v")
	ask(t, urls[3], "HSET", record.Key, "f", "v")
	s := &servers{reach: reach{timeout: longEnough}}
	nodes, err := s.nodeSet(urls)
	tr.NoError(t, err)
	defer nodes.close()
	r := &setReset{servers: s, of: serverSet{urls: urls}, key: record.Key, nodes: nodes}
	tr.NoError(t, r.look(t.Context()))
	const another = "2 run=- gen=another nodes=5 born=0 forgot=0 basis=0 steps="
	for _, i := range []int{0, 2} {
		ask(t, urls[i], "DEL", record.Key)
		ask(t, urls[i], "SET", record.Key, another)
	}
	tr.NoError(t, f.Restart(t.Context(), 4, fleet.Kept))
	r.renew(t.Context())
	for i, done := range []bool{false, true, false, true, false} {
		assert.Equal(t, done, r.Nodes[i].Reset, i)
		if !done {
			assert.NotEmpty(t, r.Nodes[i].Error)
		}
	}
	assert.Contains(t, r.Nodes[0].Error, "changed in the meantime")
	assert.Equal(t, another, has(t, urls[0], record.Key))
	assert.Equal(t, another, has(t, urls[2], record.Key))
	assert.Empty(t, has(t, urls[4], record.Key))
	assert.ErrorContains(t, r.verdict(), "NOT COMPLETE: 3 of 5")
	assert.ErrorContains(t, r.verdict(), "no lock can be taken")
}

// TestResetRefusesUnknownLocks: with --yes, no user would see that the locks are unknown.
func TestResetRefusesUnknownLocks(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 3)
	urls := f.URLs()
	reset(t, urls)
	before := has(t, urls[0], record.Key)
	ask(t, urls[1], "ACL", "SETUSER", "default", "-scan")
	code, _, errs := reset(t, urls)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "nothing was changed: --yes needs a list of the held locks, which are unknown on "+strings.TrimPrefix(urls[1], "redis://"))
	assert.Contains(t, errs, "+scan")
	assert.Equal(t, before, has(t, urls[0], record.Key), "nothing was changed")
	ask(t, urls[1], "ACL", "SETUSER", "default", "+scan")
	code, _, errs = reset(t, urls)
	assert.Zero(t, code, errs)
}

func TestResetPrintsJSON(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	put(t, f.URLs()[:1], "nightly", "v")
	code, out, errs := reset(t, f.URLs(), "--json")
	tr.Zero(t, code, errs)
	var r setReset
	tr.NoError(t, json.Unmarshal([]byte(out), &r))
	assert.Equal(t, []string{"nightly"}, r.Locks)
	assert.Equal(t, 3, r.Answered)
	for _, n := range r.Nodes {
		assert.True(t, n.Reset)
	}

	code, out, errs = redlockCommand(t, on(f, "reset", "--json")...) // as in the page; there is no terminal
	assert.Equal(t, exitUsage, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "Locks that are held, 1: nightly.")
	assert.Contains(t, errs, "--yes is required where there is no terminal")
}
