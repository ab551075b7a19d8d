package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

// lockOf decodes the output of status --json for one name.
func lockOf(t *testing.T, out string) (status, survey.Lock) {
	t.Helper()
	var st status
	tr.NoError(t, json.Unmarshal([]byte(out), &st), out)
	tr.Len(t, st.Locks, 1)
	return st, st.Locks[0]
}

func TestStatusShowsTheStateOfALock(t *testing.T) {
	t.Parallel()
	onKinds(t, 5, func(t *testing.T, f fleet.Fleet) {
		held := hold(t, f, "held")
		put(t, f.URLs()[:4], "four", "v")
		put(t, f.URLs()[:2], "partial", "v")
		put(t, f.URLs()[:2], "split", "v")
		put(t, f.URLs()[2:5], "split", "w")
		put(t, f.URLs()[4:5], "split", "x")
		ask(t, f.URLs()[1], "SET", "stuck", "v")
		put(t, f.URLs()[:1], "strange", "v")
		put(t, f.URLs()[:3], "stray", "v")
		ask(t, f.URLs()[3], "SET", "stray", "w")
		ask(t, f.URLs()[1], "HSET", "strange", "f", "v")
		tests := []struct {
			name, state string
			votes       int
			value, says string
		}{
			{"held", inspect.Held, 5, held.Value(), "  " + held.Value()[:12] + "\n"},
			{"four", inspect.Held, 4, "v", "4 of 5"},
			{"free", inspect.Free, 0, "", "\nfree               free     -"},
			{"partial", inspect.Partial, 2, "v", "2 of 5"},
			{"split", inspect.Split, 2, "v", "split"},
			{"stuck", inspect.Stuck, 1, "v", "redlock release stuck --force"},
			{"strange", inspect.Partial, 1, "v", "other data than a lock"},
			{"stray", inspect.Held, 3, "v", "\n  redlock release stray --value w\n"},
		}
		all := []string{"status"}
		for _, test := range tests {
			all = append(all, test.name)
		}
		text := succeeds(t, on(f, all...)...)
		fits(t, text)
		var st status
		tr.NoError(t, json.Unmarshal([]byte(succeeds(t, on(f, append(all, "--json")...)...)), &st))
		assert.Equal(t, []int{5, 3}, []int{st.Answered, st.Quorum})
		for i, test := range tests {
			l := st.Locks[i]
			assert.Equal(t, test.state, l.State, test.name)
			assert.Equal(t, test.votes, l.Votes, test.name)
			assert.Equal(t, test.value, l.Value, test.name)
			assert.Contains(t, text, test.says)
			switch test.state {
			case inspect.Held:
				tr.NotNil(t, l.TTL)
				assert.Positive(t, *l.TTL)
			case inspect.Stuck:
				assert.EqualValues(t, -1, *l.TTL)
			default:
				assert.Nil(t, l.TTL)
			}
			want := 1
			if test.state == inspect.Held {
				want = 0
			}
			code, out, errs := redlockCommand(t, on(f, "status", "-q", test.name)...)
			assert.Equal(t, want, code, test.name)
			assert.Empty(t, out+errs)
		}
	})
}

func TestStatusShowsServersThatAreDown(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 5)
	put(t, f.URLs()[:4], "four", "v")
	put(t, f.URLs()[3:5], "two", "v")
	for i := range 2 {
		tr.NoError(t, f.Kill(t.Context(), i))
	}
	out := succeeds(t, on(f, "status", "four", "two", "free")...)
	assert.Contains(t, strings.ReplaceAll(out, "\n", " "), "No answer from "+strings.TrimPrefix(f.URLs()[0], "redis://")+", "+strings.TrimPrefix(f.URLs()[1], "redis://")+": dial: connect: connection refused ", "once, as they fail alike")
	assert.Equal(t, 6, strings.Count(out, "silent"), "two servers, for each of three names")
	assert.Contains(t, out, "refused")
	code, out, _ := redlockCommand(t, on(f, "status", "two", "--json")...)
	assert.Zero(t, code)
	_, l := lockOf(t, out)
	assert.Equal(t, inspect.Unknown, l.State, "the two that are down may have it as well")
	code, _, _ = redlockCommand(t, on(f, "status", "-q", "two")...)
	assert.Equal(t, exitNoQuorum, code, "it cannot be told")
	code, _, _ = redlockCommand(t, on(f, "status", "-q", "two", "free")...)
	assert.Equal(t, exitFailed, code, "one is free for certain")

	tr.NoError(t, f.Kill(t.Context(), 2))
	for _, args := range [][]string{{"status"}, {"status", "four"}, {"status", "four", "--json"}} {
		code, out, errs := redlockCommand(t, on(f, args...)...)
		assert.Equal(t, exitNoQuorum, code)
		assert.Contains(t, out, "four", "what is known is told")
		assert.Contains(t, errs, "2 of 5 servers answered")
		assert.Equal(t, 1, strings.Count(errs, "\n"))
	}
}

func TestStatusFindsAllLocksAndNothingElse(t *testing.T) {
	t.Parallel()
	onKinds(t, 3, func(t *testing.T, f fleet.Fleet) {
		put(t, f.URLs()[:3], "app*:a", "v")
		put(t, f.URLs()[1:2], "app*:b", "v")
		put(t, f.URLs()[:3], "apple:c", "v")
		ask(t, f.URLs()[0], "ZADD", "redlock:fence:{app*:a}", 17, "highest")
		put(t, f.URLs()[:1], "app*:redlock:epoch", "1 - x 3 10000 0")
		put(t, f.URLs()[:1], "redlock:queue:{app*:a}:1", "")
		ask(t, f.URLs()[0], "HSET", "app*:hash", "f", "v")
		put(t, f.URLs()[:1], strings.Repeat("long", 400), "v")
		names := func(args ...string) (names []string, st status) {
			out := succeeds(t, on(f, append(args, "--json")...)...)
			tr.NoError(t, json.Unmarshal([]byte(out), &st))
			for _, l := range st.Locks {
				names = append(names, l.Name)
			}
			return names, st
		}
		found, st := names("status", "--prefix", "app*:", "--limit", "2")
		assert.Equal(t, []string{"a", "b"}, found)
		assert.False(t, st.CutOff, "keys of the library's own do not count")
		found, _ = names("status")
		assert.Equal(t, []string{"app*:a", "app*:b", "apple:c"}, found)
		put(t, f.URLs()[2:3], "zoo[x]:a", "v")
		put(t, f.URLs()[2:3], "zoo[x]:", "v")
		found, _ = names("status", "--prefix", "zoo[x]:")
		assert.Equal(t, []string{"a"}, found, "an empty name is none")
		found, st = names("status", "--limit", "1")
		assert.Equal(t, []string{"app*:a"}, found)
		assert.True(t, st.CutOff)
		_, out, _ := redlockCommand(t, on(f, "status", "--limit", "1")...)
		assert.Contains(t, out, "--limit")
		assert.Contains(t, out, "looks like a lock")
	})
}

// A client that can write to the servers must not be able to control the terminal.
func TestStatusPrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	name := "\x1b[2J\x00\xff\u202eevil\n"
	put(t, f.URLs()[:3], name, "\x1b]0;pwned\a\xfe")
	for _, args := range [][]string{{"status"}, {"status", name}, {"release", name, "--force"}, {"release", name, "--value", "x"}} {
		_, out, errs := redlockCommand(t, on(f, args...)...)
		assert.NotContains(t, out+errs, "\x1b")
		assert.NotContains(t, out+errs, "\a")
		assert.NotContains(t, out+errs, "\u202e")
		assert.NotContains(t, out+errs, "\xff")
		assert.Contains(t, out+errs, `\x`, "it is told with escapes")
	}
	_, _, errs := redlockCommand(t, "status", "--config", "/no/\x1b[2J")
	assert.Contains(t, errs, `/no/\x1b[2J`)
	_, out, _ := redlockCommand(t, on(f, "status", "--json")...)
	_, l := lockOf(t, out)
	assert.Equal(t, name, string(l.NameBytes))
	assert.Equal(t, "\x1b]0;pwned\a\xfe", string(l.Bytes))
	assert.Equal(t, inspect.Held, l.State)
}

// TestWatchIntervalMayBeTheNextWord: a next word that is not an interval is a name.
func TestWatchIntervalMayBeTheNextWord(t *testing.T) {
	for line, want := range map[string]string{
		"status --watch 1s x":    "status --watch=1s x",
		"status x --watch 1.5s":  "status x --watch=1.5s",
		"status --watch x":       "status --watch x",
		"status 1s --watch":      "status 1s --watch",
		"status --watch -- 1s":   "status --watch -- 1s",
		"status -- --watch 1s":   "status -- --watch 1s",
		"run x -- watch 1s":      "run x -- watch 1s",
		"run status --watch 1s":  "run status --watch 1s",
		"status --watch=2s 1s x": "status --watch=2s 1s x",
	} {
		assert.Equal(t, strings.Fields(want), withInterval(strings.Fields(line)), line)
	}
}

// TestStatusShowsReaders: status does not show the key of the readers as the value of a holder.
func TestStatusShowsReaders(t *testing.T) {
	t.Parallel()
	f := startFleet(t, kinds[0], 3)
	holdReader(t, f, "job")
	out := succeeds(t, on(f, "status", "job")...)
	assert.Equal(t, 3, strings.Count(out, "(readers)"), out)
	assert.Contains(t, out, "(1 reader)")
	lock := holdReader(t, f, "job", redlock.Owner("web-3"))
	_, out, _ = redlockCommand(t, on(f, "status", "job")...)
	assert.Contains(t, out, "(2 readers)")
	assert.Regexp(t, `reader +held +3 of 3 +\S+ +`+lock.Value()[:12]+` +web-3 since`, out)
	_, all, _ := redlockCommand(t, on(f, "status")...)
	assert.Contains(t, all, "(2 readers)")
	assert.NotContains(t, out, protocol.ReadersValue)
	_, out, _ = redlockCommand(t, on(f, "status", "job", "--json")...)
	_, l := lockOf(t, out)
	assert.Equal(t, inspect.Held, l.State)
	assert.True(t, l.Readers)
	assert.Empty(t, l.Value)
	tr.Len(t, l.ReadBy, 2)
	assert.True(t, l.ReadBy[0].Owner == "web-3" || l.ReadBy[1].Owner == "web-3")
	for _, n := range l.Nodes {
		assert.True(t, n.Readers)
		assert.Empty(t, n.Value)
	}
	code, _, _ := redlockCommand(t, on(f, "status", "-q", "job")...)
	assert.Zero(t, code)

	// Leftovers of readers are void if a writer holds the key.
	put(t, f.URLs()[:1], "writer", "v")
	put(t, f.URLs()[1:], "writer", protocol.ReadersValue)
	for _, u := range f.URLs() {
		ask(t, u, "ZADD", keys.Readers.Of("writer"), time.Now().Add(time.Hour).UnixMilli(), "reader")
		ask(t, u, "ZADD", keys.Readers.Of("writer"), time.Now().Add(-time.Hour).UnixMilli(), "gone")
	}
	_, out, _ = redlockCommand(t, on(f, "status", "writer", "--json")...)
	_, l = lockOf(t, out)
	tr.Len(t, l.ReadBy, 1, out)
	assert.Equal(t, 2, l.ReadBy[0].Votes)

	for _, u := range f.URLs() {
		ask(t, u, "SET", "stuck", protocol.ReadersValue)
	}
	_, out, _ = redlockCommand(t, on(f, "status", "stuck")...)
	assert.Contains(t, out, "redlock release stuck --force")
	succeeds(t, on(f, "release", "stuck", "--force", "--yes")...)
	assert.Empty(t, has(t, f.URLs()[0], "stuck"))
}

// TestStatusShowsPermits: status shows each permit as a lock, both the permits of a NAME and all
// permits found.
func TestStatusShowsPermits(t *testing.T) {
	t.Parallel()
	f := startFleet(t, kinds[0], 5)
	put(t, f.URLs(), "pool", "zero")
	put(t, f.URLs(), "redlock:permit:2:{pool}", "two")
	put(t, f.URLs(), "redlock:permit:1:{other}", "one")
	put(t, f.URLs(), "redlock:permit:1000:{no}", "permit")
	states := func(args ...string) (found []string) {
		out := succeeds(t, on(f, append(args, "--json")...)...)
		var st status
		tr.NoError(t, json.Unmarshal([]byte(out), &st), out)
		for _, l := range st.Locks {
			found = append(found, fmt.Sprint(l.Title(), " ", l.State, " ", l.Value))
		}
		return found
	}
	assert.Equal(t, []string{"pool, permit 0 held zero", "pool, permit 1 free ", "pool, permit 2 held two", "pool, permit 3 free "},
		states("status", "pool", "--permits", "4"))
	assert.Equal(t, []string{"pool, permit 0 held zero", "pool, permit 2 held two"}, states("status", "pool"))
	assert.Equal(t, []string{"pool, permit 0 held zero", "pool, permit 1 free ", "pool, permit 2 held two"}, states("status", "pool", "--permits", "2"))
	assert.Equal(t, []string{"other, permit 1 held one", "free free "}, states("status", "other", "free"))
	assert.Equal(t, []string{"other, permit 1 held one", "pool, permit 0 held zero", "pool, permit 2 held two"}, states("status"))

	code, _, _ := redlockCommand(t, on(f, "status", "-q", "pool", "--permits", "3")...)
	assert.Equal(t, 1, code, "permit 1 is free")
	code, _, _ = redlockCommand(t, on(f, "status", "-q", "other")...)
	assert.Zero(t, code, "a permit of it is held")
	ask(t, f.URLs()[1], "SET", "redlock:permit:3:{pool}", "v")
	_, out, _ := redlockCommand(t, on(f, "status", "pool", "--permits", "4")...)
	assert.Contains(t, out, "\n  redlock release pool --value v\n")
}

// TestStatusFindsNoLocksOnServersWithoutAVote: status does not claim that there are no locks. A
// replica holds the locks of its primary, and a node of a cluster holds some of them.
func TestStatusFindsNoLocksOnServersWithoutAVote(t *testing.T) {
	t.Parallel()
	testenv.NeedRedis(t)
	for mode, says := range map[fleet.Mode]string{fleet.Standalone: "is a replica", fleet.ClusterNode: "Redis Cluster", fleet.Sentinel: "is a Sentinel"} {
		f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: 1, Mode: mode})
		tr.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		if mode == fleet.Standalone {
			ask(t, f.URLs()[0], "REPLICAOF", "127.0.0.1", "1")
		}
		code, out, errs := redlockCommand(t, on(f, "status")...)
		assert.Equal(t, exitNoQuorum, code, mode)
		assert.Contains(t, out, says)
		assert.NotContains(t, out, "no locks")
		assert.Contains(t, errs, "no quorum: 0 of 1")
	}
}
