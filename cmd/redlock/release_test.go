package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// TestReleaseAcceptsTheValueThatStatusShows: this applies to locks of this library and of other
// clients.
func TestReleaseAcceptsTheValueThatStatusShows(t *testing.T) {
	t.Parallel()
	elsewhere := startFleet(t, fleet.Embedded, 3) // the locks are held here, because a holder would repair its lock between two deletions
	onKinds(t, 3, func(t *testing.T, f fleet.Fleet) {
		for name, value := range map[string]string{
			"plain":    hold(t, elsewhere, "plain").Value(),
			"labelled": hold(t, elsewhere, "labelled", redlock.Owner("web-3 pid 812")).Value(),
			"foreign":  "0123abcd-web-3:812",
			"digits":   "0123456789abcdef",
		} {
			put(t, f.URLs(), name, value)
			_, out, _ := redlockCommand(t, on(f, "status", name)...)
			row := strings.Fields(strings.Split(out, "\n")[2]) // row of the first server
			shown := row[len(row)-1]
			out = succeeds(t, on(f, "release", name, "--value", shown)...)
			assert.Equal(t, name+": deleted on 3 of 3 servers\n", out, shown)
			assert.Empty(t, has(t, f.URLs()[0], name))
		}
	})
}

// TestStartOfAValueMatchesOneLock: a client that numbers its values begins each value like the last
// one, and two values may share their first digits.
func TestStartOfAValueMatchesOneLock(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	put(t, f.URLs(), "foreign", "0123456789-2")
	put(t, f.URLs(), "more", strings.Repeat("ab", 20)+"0")
	ours := func(end string) string { return strings.Repeat("ab", 19) + end }
	put(t, f.URLs()[:1], "two", ours("00"))
	put(t, f.URLs()[1:], "two", ours("01")+" 20261122T120307Z web-3")
	for _, test := range []struct{ name, value, says string }{
		{"foreign", "0123456789", "no server that answered holds foreign with a value that begins with --value"},
		{"more", "abababababab", "begins with --value"},
		{"two", "abababab", "2 values"},
		{"two", "ababab", "with that value: nothing was deleted; pass at least 8 digits of a value that redlock made"},
	} {
		errs := refuses(t, exitFailed, test.says, on(f, "release", test.name, "--value", test.value)...)
		assert.Contains(t, errs, "nothing was deleted")
		assert.NotContains(t, errs, "ababab", "a value is a secret")
		for _, u := range f.URLs() {
			assert.NotEmpty(t, has(t, u, test.name))
		}
	}
	out := succeeds(t, on(f, "release", "two", "--value", ours("01"))...)
	assert.Contains(t, out, "deleted on 2 of 3")
	assert.Equal(t, ours("00"), has(t, f.URLs()[0], "two"))
}

func TestForcedReleaseFreesALock(t *testing.T) {
	t.Parallel()
	onKinds(t, 5, func(t *testing.T, f fleet.Fleet) {
		lock := hold(t, f, "job", redlock.Fenced(), redlock.Renew(false))
		ask(t, f.URLs()[0], "SET", "job", "") // stuck, and empty
		put(t, f.URLs()[1:2], "job", "other")
		out := succeeds(t, on(f, "release", "job", "--force", "--yes")...)
		assert.Contains(t, out, lock.Value(), "whom it belonged to is shown")
		assert.Contains(t, out, "none")
		assert.Contains(t, out, "deleted on 5 of 5")
		counters := 0
		for _, u := range f.URLs() {
			assert.Equal(t, int64(0), ask(t, u, "EXISTS", "job"))
			counters += int(ask(t, u, "EXISTS", "redlock:fence:{job}").(int64))
		}
		assert.GreaterOrEqual(t, counters, 3, "the counters stay")
		next := hold(t, f, "job", redlock.Fenced())
		assert.Greater(t, next.Fence(), lock.Fence())

		refuses(t, exitFailed, "nothing to release", on(f, "release", "free", "--force", "--yes")...)
	})
}

// releaseBesides releases a lock by force, and calls a function after the lock was shown and before
// it is deleted.
func releaseBesides(t *testing.T, f fleet.Fleet, name string, meanwhile func()) (said string, err error) {
	t.Helper()
	var out strings.Builder
	r := &releaseCommand{servers: &servers{targets: targets{nodes: f.URLs()}, reach: reach{timeout: longEnough}}, name: name, force: true, out: &out}
	r.approve = func() error { meanwhile(); out.Reset(); return nil }
	err = r.run(t.Context(), r.servers.targets.all()[0])
	return out.String(), err
}

// A value that a server gets between the question and the answer is the lock of another client.
func TestForcedReleaseKeepsALaterHolder(t *testing.T) {
	t.Parallel()
	onKinds(t, 3, func(t *testing.T, f fleet.Fleet) {
		put(t, f.URLs()[:2], "job", "old")
		_, err := releaseBesides(t, f, "job", func() { put(t, f.URLs(), "job", "new") })
		assert.ErrorContains(t, err, "another client")
		ask(t, f.URLs()[0], "SET", "lone", "old")
		_, err = releaseBesides(t, f, "lone", func() {
			ask(t, f.URLs()[0], "DEL", "lone")
			put(t, f.URLs()[1:], "lone", "new")
		})
		assert.NoError(t, err)
		for i, u := range f.URLs() {
			assert.Equal(t, "new", has(t, u, "job"))
			assert.Equal(t, []string{"", "new", "new"}[i], has(t, u, "lone"))
		}
	})
}

func TestReleaseReportsItsFailures(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 5)
	put(t, f.URLs(), "job", "v")
	put(t, f.URLs(), "more", "v")
	put(t, f.URLs()[3:5], "mixed", "v")
	ask(t, f.URLs()[2], "HSET", "mixed", "f", "v")
	for i := range 2 {
		tr.NoError(t, f.Kill(t.Context(), i))
	}
	out := succeeds(t, on(f, "release", "job", "--value", "v")...)
	assert.Contains(t, out, "deleted on 3 of 5")
	assert.Equal(t, 2, strings.Count(out, "may hold it until its TTL ends"))

	code, out, errs := redlockCommand(t, on(f, "release", "mixed", "--force", "--yes")...)
	assert.Equal(t, exitFailed, code, "too few are known to be free of it")
	assert.Contains(t, out, "other data than a lock")
	assert.Contains(t, errs, "deleted on 2 of 5")
	assert.Equal(t, "hash", ask(t, f.URLs()[2], "TYPE", "mixed"), "what is no lock is left alone")

	tr.NoError(t, f.Kill(t.Context(), 2))
	for _, args := range [][]string{{"--value", "v"}, {"--force", "--yes"}} {
		refuses(t, exitNoQuorum, "no quorum", on(f, append([]string{"release", "more"}, args...)...)...)
		assert.Contains(t, errs, "refused")
		assert.Equal(t, 1, strings.Count(errs, "\n"))
	}
	assert.Empty(t, has(t, f.URLs()[3], "more"), "what could be done was")
}

// A server that does not answer is shown as silent, not as free.
func TestForcedReleaseCountsNoSilentServerAsFree(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	put(t, f.URLs()[:3], "job", "v")
	for i := range 2 {
		tr.NoError(t, f.Pause(t.Context(), i))
	}
	refuses(t, exitNoQuorum, "deleted on 1 of 3", on(f, "release", "job", "--force", "--yes", "--dial-timeout", "6s")...)
}

func TestForcedReleaseFreesAllPermits(t *testing.T) {
	t.Parallel()
	onKinds(t, 3, func(t *testing.T, f fleet.Fleet) {
		slot := []string{keys.Slot("conv", 0), keys.Slot("conv", 998)}
		for i, key := range slot {
			put(t, f.URLs(), key, strings.Repeat(string("ab"[i]), 40))
		}
		out := succeeds(t, on(f, "release", "conv", "--force", "--yes")...)
		assert.Contains(t, out, "conv, permit 0: deleted on 3 of 3 servers\nconv, permit 998: deleted on 3 of 3 servers\n")
		for _, u := range f.URLs() {
			assert.Empty(t, has(t, u, slot[0])+has(t, u, slot[1]))
		}
	})
}

// TestReleaseDoesNotGuessReaders: if servers do not list their readers, release does not guess
// them.
func TestReleaseDoesNotGuessReaders(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 3)
	lock := holdReader(t, f, "job")
	for _, u := range f.URLs() {
		ask(t, u, "ACL", "SETUSER", "default", "-zrange")
	}
	for _, how := range [][]string{{"--value", lock.Value()}, {"--force", "--yes"}} {
		code, out, errs := redlockCommand(t, on(f, append([]string{"release", "job"}, how...)...)...)
		assert.Equal(t, exitNoQuorum, code, out)
		assert.Contains(t, errs, "has readers, but did not list them")
		assert.NotContains(t, errs, lock.Value())
	}
	for _, u := range f.URLs() {
		assert.True(t, isReader(t, u, "job", lock))
	}
}

// TestForcedReleaseKeepsLaterReaders: a forced release removes only the readers that it has shown.
func TestForcedReleaseKeepsLaterReaders(t *testing.T) {
	t.Parallel()
	onKinds(t, 3, func(t *testing.T, f fleet.Fleet) {
		first := holdReader(t, f, "job", redlock.Renew(false))
		put(t, f.URLs()[:2], "mixed", "v")
		put(t, f.URLs()[2:], "mixed", protocol.ReadersValue) // left by readers
		var later *redlock.Lock
		for name, meanwhile := range map[string]func(){"job": func() { later = holdReader(t, f, "job") }, "mixed": func() {}} {
			said, err := releaseBesides(t, f, name, meanwhile)
			assert.NoError(t, err)
			assert.NotContains(t, said, protocol.ReadersValue)
		}
		for _, u := range f.URLs() {
			assert.False(t, isReader(t, u, "job", first))
			assert.True(t, isReader(t, u, "job", later))
			assert.Empty(t, has(t, u, "mixed"))
		}
	})
}

func TestReleaseShowsNoPassword(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Process, 1)
	ask(t, f.URLs()[0], "CONFIG", "SET", "requirepass", "hunter2")
	at := strings.TrimPrefix(f.URLs()[0], "redis://")
	for _, url := range []string{"redis://:hunter2@" + at, "redis://:hunter2-wrong@" + at, f.URLs()[0]} {
		for _, args := range [][]string{{"release", "a", "--force", "--yes"}, {"reset", "--yes"}, {"status"}, {"status", "a", "--json"}, {"doctor", "--all"}, {"doctor", "--json"}} {
			code, out, errs := redlockCommand(t, append(args, "--node", url, "-v", "--dial-timeout", longEnough.String())...)
			assert.NotContains(t, out+errs, "hunter2", args)
			if url != "redis://:hunter2@"+at {
				assert.Equal(t, exitNoQuorum, code, args)
				assert.Contains(t, out+errs, "password")
			}
		}
	}
}

func TestReleaseReportsFailedOutput(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 1)
	put(t, f.URLs()[:1], "job", "v")
	var errs bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), on(f, "release", "job", "--force", "--yes"), broken{}, &errs))
	assert.Contains(t, errs.String(), "output: broken")
	assert.Equal(t, "v", has(t, f.URLs()[0], "job"), "what could not be shown was not deleted")
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }
