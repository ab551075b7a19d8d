package pool

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
)

// The first hint means that a node can send hints: from then on the server tracks the keys of
// questions.

// TestAnyChangeOfTheKeyGivesAHint: a request must have watched the key. An extension by the holder
// itself gives no hint, and does not end the tracking by the server.
func TestAnyChangeOfTheKeyGivesAHint(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "NOLOOP covers what scripts change")
	inspect, extend := watching(protocol.Request{Op: protocol.OpInspect, Key: "k"}), watching(extend("k", "v"))
	for name, ask := range map[string][]protocol.Request{
		"watched":                 {{Op: protocol.OpWatch, Key: "k"}},
		"inspected":               {inspect},
		"extended":                {extend},
		"extended, and once more": {extend, extend},
		"inspected, extended":     {inspect, extend},
	} {
		for change, command := range map[string][]any{
			"deleted":       {"DEL", "k"},
			"released":      {"EVAL", "return redis.call('DEL', KEYS[1])", 1, "k"},
			"overwritten":   {"SET", "k", "other"},
			"expired":       {"PEXPIRE", "k", 20},
			"the database":  {"FLUSHDB"},
			"all databases": {"FLUSHALL"},
		} {
			t.Run(name+", "+change, func(t *testing.T) { // not parallel: some changes concern all keys
				n := openNode(t, s.url())
				w := wait(t, n, "k")
				w.next()
				require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
				for _, r := range ask {
					require.NoError(t, do(t, n, r).Err)
				}
				s.do("PING")
				assert.Empty(t, w.hints)
				s.do(command...)
				w.next()
				if change == "expired" && w.ask().Outcome == protocol.Refused {
					w.next() // the first hint was for the new TTL
				}
				s.do("DEL", "k")
				require.NoError(t, n.Close())
			})
		}
	}
}

// TestHintIsOnlyForWatchersOfTheKey: a watcher gets one hint per question, for a change by another
// client. Messages arrive in order: the hint for one key follows all earlier hints.
func TestHintIsOnlyForWatchersOfTheKey(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "NOLOOP covers what scripts change")
	n := openNode(t, s.url())
	a := wait(t, n, "a")
	a.next()
	also, left, b := wait(t, n, "a"), wait(t, n, "a"), wait(t, n, "b")
	left.stop()
	left.stop() // a second call has no effect
	require.Equal(t, protocol.Granted, do(t, n, acquire("a", "v")).Outcome)
	a.ask()
	b.ask()
	require.Equal(t, protocol.Granted, do(t, n, release("a", "v")).Outcome)
	s.do("SET", "b", "x")
	b.next()
	assert.Empty(t, a.hints, "of its own release")
	a.ask()
	for range 5 {
		s.do("SET", "a", "x")
		s.do("DEL", "a")
	}
	a.next()
	also.next()
	b.ask()
	s.do("SET", "b", "y")
	b.next()
	for _, w := range []*waiter{a, also, left, b} {
		assert.Empty(t, w.hints)
	}
}

func TestListenerExistsOnlyWhileAKeyIsWatched(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "CLIENT LIST shows redir")
	n := openNode(t, s.url(), lingering(time.Millisecond))
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	assert.Empty(t, s.clients("redlock-hints"))
	assert.Equal(t, "-1", s.client("redlock")["redir"])
	for range 3 {
		w, other := wait(t, n, "k"), wait(t, n, "other")
		w.next()
		other.stop()
		assert.Equal(t, s.client("redlock-hints")["id"], s.client("redlock")["redir"])
		w.stop()
		eventually(t, func() bool { return len(s.clients("redlock-hints")) == 0 }, "the listener goes")
		off := func() bool { return s.client("redlock")["redir"] == "-1" }
		eventually(t, off, "the server need not remember keys any more")
	}
}

func lingering(d time.Duration) Option { return option(false, "", func(s *settings) { s.Linger = d }) }

func TestHintsContinue(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(s live){
		"after the listener was killed":   func(s live) { s.do("CLIENT", "KILL", "ID", s.client("redlock-hints")["id"]) },
		"after the connection was killed": func(s live) { s.do("CLIENT", "KILL", "ID", s.client("redlock")["id"]) },
		"after both were killed":          func(s live) { s.do("CLIENT", "KILL", "SKIPME", "yes") },
		"after the server was restarted":  func(s live) { require.NoError(s.t, s.Restart(s.t.Context(), 0, fleet.Lost)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLive(t)
			n := openNode(t, s.url())
			w := wait(t, n, "k")
			w.next()
			for range 2 {
				strike(s)
				w.next() // earlier changes may have been missed
				answers(t, n)
				w.ask()
				s.do("SET", "k", "v")
				w.next()
			}
		})
	}
}

// A listener may end just after its number was sent to the server.
func TestEndedListenerIsNotARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	r.fail("CLIENT TRACKING", "ERR The client ID you want redirect to does not exist")
	var log logBuffer
	n := r.open(log.log())
	w := wait(t, n, "k")
	eventually(t, func() bool { return len(r.commands("CLIENT TRACKING ON")) > 0 }, "it is named")
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	assert.Empty(t, w.hints)
	r.fail("CLIENT TRACKING", "")
	r.fail("SET", "BUSY Redis is busy running a script.") // ends the connection
	trouble(t, n, acquire("k2", "v"))
	w.next()
	assert.Zero(t, log.polls(n))
}

// TestListenerOutlivesItsWatchersForAWhile: it does not outlive Close, which may be called while it
// connects, serves, or ends.
func TestListenerOutlivesItsWatchersForAWhile(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url(), lingering(time.Hour))
	w := wait(t, n, "k")
	w.next()
	id := s.client("redlock-hints")["id"]
	for range 10 {
		w.stop()
		s.do("PING") // takes its time
		w = wait(t, n, "k")
	}
	w.ask()
	s.do("SET", "k", "v")
	w.next()
	assert.Equal(t, id, s.client("redlock-hints")["id"])
	require.NoError(t, n.Close())
	eventually(t, s.unused, "no connection is left")
	wait(t, n, "k").stop()
	w.stop()
	assert.Empty(t, w.hints)
	for range 20 {
		n := openNode(t, s.url(), lingering(0))
		wait(t, n, "k").stop()
		wait(t, n, "k")
		require.NoError(t, n.Close())
	}
	eventually(t, s.unused, "no connection is left")
}

func TestConnectionsOfADialFunctionGiveHints(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n, err := FromDial("dial", func(context.Context) (redis.Conn, error) {
		// A read timeout must not end a listener without messages.
		return redis.DialURL(s.url(), redis.DialReadTimeout(100*time.Millisecond))
	}, patient()...)
	require.NoError(t, err)
	defer n.Close()
	answers(t, n)
	w := wait(t, n, "k")
	w.next()
	listener := s.client("redlock-hints")["id"]
	<-time.After(200 * time.Millisecond) // the silence under test
	w.ask()
	s.do("SET", "k", "v")
	w.next()
	assert.Equal(t, listener, s.client("redlock-hints")["id"])
}

// A hanging dial delays only its own connection.
func TestListenerHasItsOwnDial(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address, hang := r.Addr(), make(chan struct{}) // a dial outlives the rig, which then has no address
	var dialled atomic.Int64
	dials := func(n int64) { eventually(t, func() bool { return dialled.Load() == n }, fmt.Sprint("dial ", n)) }
	n, err := FromDial("dial", func(context.Context) (redis.Conn, error) {
		if dialled.Add(1) > 1 {
			<-hang
		}
		return redis.Dial("tcp", address)
	}, onlyBounds()...)
	require.NoError(t, err)
	defer n.Close()
	defer close(hang)
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	defer wait(t, n, "k").stop()
	dials(2)
	require.Equal(t, protocol.Granted, do(t, n, release("k", "v")).Outcome)
	r.fail("EVALSHA", "BUSY Redis is busy running a script.") // ends the connection
	trouble(t, n, release("k", "v"))
	dials(3)
}

// watching returns the request with a hint at the next change of its key.
func watching(r protocol.Request) protocol.Request {
	r.Watch = true
	return r
}

func TestServerWithoutHintsIsPolled(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	s.since("6.2", "ACL rules for channels")
	for user, rule := range map[string]string{
		"tracking": "-client|tracking",
		"caching":  "-client|caching",
		"id":       "-client|id",
		"channel":  "resetchannels",
	} {
		s.do("ACL", "SETUSER", user, "on", ">hunter2", "~*", "&*", "+@all", rule)
		t.Run("ACL "+rule, func(t *testing.T) {
			t.Parallel()
			s := live{s.Fleet, t}
			var log logBuffer
			var dials atomic.Int64
			n := openNode(t, "redis://"+user+":hunter2@"+strings.TrimPrefix(s.url(), "redis://"), log.log(), counting(&dials))
			listens := func() bool {
				return slices.ContainsFunc(s.clients("redlock-hints"), func(c client) bool { return c["user"] == user })
			}
			answers(t, n) // a listener that is refused before there is a connection is tried once more
			w := wait(t, n, user)
			if rule == "-client|caching" {
				w.next() // the server seems to be able to send hints
			}
			require.Equal(t, protocol.Granted, do(t, n, acquire(user, "v")).Outcome)
			assert.Equal(t, protocol.Refused, w.ask().Outcome)
			eventually(t, func() bool { return log.polls(n) == 1 && !listens() }, "the listener is given up")
			assert.Equal(t, protocol.Refused, w.ask().Outcome)
			require.Equal(t, protocol.Granted, do(t, n, release(user, "v")).Outcome)
			before := dials.Load()
			wait(t, n, user).stop()
			s.do("PING")
			assert.Equal(t, before, dials.Load(), "and not tried again")
			assert.Empty(t, w.hints)

			// The next connection may have the right. The doubt is not logged again.
			s.killOf(user)
			answers(t, n)
			if rule == "-client|caching" {
				w.next()
			}
			assert.Equal(t, protocol.Granted, w.ask().Outcome)
			eventually(t, func() bool { return !listens() }, "given up again")
			s.do("ACL", "SETUSER", user, "&*", "+@all")
			s.killOf(user)
			answers(t, n)
			w.next()
			w.ask()
			s.do("SET", user, "x")
			w.next()
			assert.Equal(t, 1, log.polls(n), "said once")
		})
	}
}

// TestHintsAreRequestedAgain: this happens on the same connection, because its user may have got
// the right.
func TestHintsAreRequestedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var log logBuffer
	again := option(false, "", func(s *settings) { s.AskAgain = 20 * time.Millisecond })
	n := r.open(again, log.log())
	w := wait(t, n, "k")
	eventually(t, func() bool { return log.polls(n) == 1 }, "it gives no hints")
	r.set(func() { r.tracks = true })
	w.next()
	assert.Len(t, r.commands("ROLE"), 1, "it is the same connection")
}

// counting counts new connections.
func counting(dials *atomic.Int64) Option {
	return NetDial(func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	})
}

// killOf ends the data connection of the user, and returns when there is another.
func (s live) killOf(user string) {
	s.t.Helper()
	find := func() (id string) {
		for _, c := range s.clients("redlock") {
			if c["user"] == user {
				id = c["id"]
			}
		}
		return id
	}
	old := find()
	s.do("CLIENT", "KILL", "ID", old)
	eventually(s.t, func() bool { id := find(); return id != "" && id != old }, "connected again")
}

// answers returns when n is connected, because a reply arrives on a connection that the server has
// not killed.
func answers(t *testing.T, n protocol.Node) {
	t.Helper()
	inspect := protocol.Request{Op: protocol.OpInspect, Key: "none"}
	eventually(t, func() bool { return try(t, n, inspect).Outcome == protocol.Granted }, "it answers")
}

func TestUnwatchedRequestHasNoExtraCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	require.Equal(t, protocol.Refused, do(t, n, protocol.Request{Op: protocol.OpWatch, Key: "k"}).Outcome)
	require.Equal(t, protocol.Granted, do(t, n, release("k", "v")).Outcome)
	assert.Equal(t, []string{"1 CLIENT SETNAME redlock", "1 CLIENT ID"}, r.commands("CLIENT"))
	assert.Equal(t, 1, r.connections())
}

// CLIENT CACHING applies to the next command, whichever it is.
func TestNoCommandSeparatesAWatchFromItsCaching(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := r.open()
	// This makes the data connection number 1.
	require.Equal(t, protocol.Granted, do(t, n, acquire("first", "v")).Outcome)
	watched := wait(t, n, "w")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 50 {
				key := fmt.Sprint(i, "-", j)
				set := acquire(key, "v")
				set.Epoch = "e"
				a, b := submit(t, n, set), submit(t, n, protocol.Request{Op: protocol.OpWatch, Key: "w"})
				c := submit(t, n, release(key, "v"))
				a.next(t)
				assert.Equal(t, protocol.Granted, b.next(t).Outcome)
				assert.Equal(t, protocol.Granted, c.next(t).Outcome, "replies belong to their requests")
			}
		})
	}
	all.Wait()
	watched.next()
	watched.ask()
	assert.Len(t, r.commands("CLIENT TRACKING ON"), 1)
	said := 0
	lines := r.sentBy(1)
	for i, line := range lines {
		if line == "1 CLIENT CACHING YES" {
			said++
			require.Equal(t, "1 PTTL w", lines[i+1])
		}
	}
	assert.Positive(t, said)
}

// sentBy returns the commands sent by a connection, without the commands of scripts.
func (r *rig) sentBy(id int) []string {
	var lines []string
	for _, line := range r.commands("") {
		if strings.HasPrefix(line, fmt.Sprint(id, " ")) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A client's number belongs to the process that assigned it. In another process it may belong to
// another client.
func TestHintsAreNotSentToAnotherProcessesClient(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	n := r.open()
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	r.is("run2") // in the listener's answer to INFO
	w := wait(t, n, "k")
	eventually(t, func() bool { return len(r.commands("SUBSCRIBE")) > 1 }, "there was a listener")
	w.ask()
	assert.Empty(t, r.commands("CLIENT TRACKING", "CLIENT CACHING"))
	assert.Empty(t, w.hints)
}

func pinging(every time.Duration) Option {
	return option(false, "", func(s *settings) { s.Ping = every })
}

func TestHangingListenerIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tracks = true
	r.hangAt("PING")
	n := r.open(pinging(time.Millisecond), StallTimeout(50*time.Millisecond))
	w := wait(t, n, "k")
	w.next()
	eventually(t, func() bool { return len(r.commands("SUBSCRIBE")) > 1 }, "the next listener")
	w.next()
}

func TestSilentListenerIsKept(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]string{"answers": "", "may not be pinged": "NOPERM this user has no permissions"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patiently(t, "the connections stay", func(stall time.Duration) bool {
				r := newRig(t)
				r.tracks = true
				r.fail("PING", failure)
				n := r.open(pinging(time.Millisecond), StallTimeout(stall))
				w := wait(t, n, "k")
				w.next()
				eventually(t, func() bool { return len(r.commands("PING")) >= 5 }, "it is looked after")
				return r.connections() == 2
			})
		})
	}
}

// TestEachWatchedSlotGivesAHint: this includes servers that track only the declared keys of a
// script.
func TestEachWatchedSlotGivesAHint(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	waiters := []*waiter{wait(t, n, "k"), wait(t, n, "s1k"), wait(t, n, "s2k")}
	for _, w := range waiters {
		w.next()
		s.do("SET", w.key, "v", "PX", 60_000)
	}
	reply := do(t, n, protocol.Request{
		Op: protocol.OpSlots, Key: "k", Watch: true, Slots: &protocol.Slots{Stem: "s", Tail: "k", N: 3},
	})
	require.Equal(t, protocol.Refused, reply.Outcome)
	for _, w := range waiters {
		s.do("DEL", w.key)
		w.next()
	}
}
