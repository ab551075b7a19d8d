package pool

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// With the first hint a node says that it begins to give hints: what is asked
// from then on is remembered by the server.

func TestAHintComesWhateverChangesTheKey(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	for name, change := range map[string]func(key string){
		"deleted":             func(key string) { s.do("DEL", key) },
		"released":            func(key string) { s.do("EVAL", releaseScript.source, 1, key, "v") },
		"overwritten":         func(key string) { s.do("SET", key, "other") },
		"expired":             func(key string) { s.do("PEXPIRE", key, 20) },
		"the database":        func(string) { s.do("FLUSHDB") },
		"all databases":       func(string) { s.do("FLUSHALL") },
		"deleted, then taken": func(key string) { s.do("EVAL", "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], 'w')", 1, key) },
	} {
		t.Run(name, func(t *testing.T) { // one after the other: some concern all keys
			n := openNode(t, s.url())
			s.do("SET", "k", "v", "PX", 60_000)
			w := wait(t, n, "k")
			w.next()
			reply := w.ask()
			assert.Equal(t, redlock.Refused, reply.Outcome)
			assert.Positive(t, reply.TTL)
			change("k")
			w.next()
			if name == "expired" && w.ask().Outcome == redlock.Refused {
				w.next() // the first was for the new TTL
			}
			require.NoError(t, n.Close())
		})
	}
}

func TestAHintComesWhenTheKeyIsMade(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	w := wait(t, openNode(t, s.url()), "k")
	w.next()
	assert.Equal(t, redlock.Granted, w.ask().Outcome)
	s.do("SET", "k", "v")
	w.next()
}

// Messages come in order: with the hint for one key, all those before it
// have been given.
func TestAHintIsForThoseWhoWatchItsKey(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	a := wait(t, n, "a")
	a.next()
	also, left, b := wait(t, n, "a"), wait(t, n, "a"), wait(t, n, "b")
	a.ask()
	b.ask()
	left.stop()
	left.stop() // twice is once
	s.do("SET", "a", "x")
	a.next()
	also.next()
	assert.Empty(t, b.hints)
	s.do("SET", "b", "x")
	b.next()
	assert.Empty(t, a.hints)
	assert.Empty(t, also.hints)
	assert.Empty(t, left.hints)
}

func TestEachQuestionGivesOneHint(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	w, last := wait(t, n, "k"), wait(t, n, "last")
	w.next()
	last.next()
	change := func() {
		for range 5 {
			s.do("SET", "k", "v")
			s.do("DEL", "k")
		}
	}
	change() // nobody has asked
	w.ask()
	change()
	last.ask()
	s.do("SET", "last", "v")
	last.next()
	assert.Len(t, w.hints, 1)
}

// A release of our own is not told: whoever made it knows.
func TestOwnChangesGiveNoHint(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	w, last := wait(t, n, "k"), wait(t, n, "last")
	w.next()
	last.next()
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	w.ask()
	require.Equal(t, redlock.Granted, do(t, n, release("k", "v")).Outcome)
	last.ask()
	s.do("SET", "last", "v")
	last.next()
	assert.Empty(t, w.hints)
}

func TestThereIsAListenerOnlyWhileSomebodyWatches(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url(), lingering(time.Millisecond))
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	assert.Empty(t, s.clients("redlock-hints"))
	assert.Equal(t, "-1", s.client("redlock")["redir"])
	for range 3 {
		w, other := wait(t, n, "k"), wait(t, n, "other")
		w.next()
		other.stop()
		assert.Equal(t, s.client("redlock-hints")["id"], s.client("redlock")["redir"])
		w.stop()
		eventually(t, func() bool { return len(s.clients("redlock-hints")) == 0 }, "the listener goes")
		eventually(t, func() bool { return s.client("redlock")["redir"] == "-1" }, "the server need not remember keys any more")
	}
}

func lingering(d time.Duration) Option {
	return func(s *settings) error {
		s.linger = d
		return nil
	}
}

func TestWaitersWhoComeAndGoShareAListener(t *testing.T) {
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
}

func TestHintsGoOn(t *testing.T) {
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
				w.next() // what was asked before may have been missed
				w.ask()
				s.do("SET", "k", "v")
				w.next()
			}
		})
	}
}

// A listener may end when its number has just been given to the server.
func TestAListenerThatIsGoneIsNoRefusal(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url())
	w := wait(t, n, "k")
	w.next()
	now := n.(*node).redirectNow()
	n.(*node).setRedirect(redirect{client: now.client + 1000, run: now.run})
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome) // and the answer to that came before
	n.(*node).setRedirect(now)
	w.next()
	w.ask()
	s.do("DEL", "k")
	w.next()
}

func (n *node) redirectNow() redirect {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.redirect
}

func TestCloseEndsTheListener(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n := openNode(t, s.url(), lingering(time.Hour))
	w := wait(t, n, "k")
	w.next()
	wait(t, n, "k2").stop()
	require.NoError(t, n.Close())
	assert.Nil(t, n.(*node).hints.listener, "its goroutine has been waited for")
	eventually(t, func() bool { return len(s.clients("redlock-hints"))+len(s.clients("redlock")) == 0 }, "no connection is left")
	wait(t, n, "k").stop()
	w.stop()
	require.NoError(t, n.Close())
	assert.Empty(t, w.hints)
	assert.Empty(t, s.clients("redlock-hints"))
}

// At any time: while the listener is being made, serves, or goes.
func TestCloseWaitsForAListenerThatIsJustBeingMade(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	for range 20 {
		n := openNode(t, s.url(), lingering(0))
		w := wait(t, n, "k")
		w.stop()
		wait(t, n, "k")
		require.NoError(t, n.Close())
		assert.Nil(t, n.(*node).hints.listener)
	}
	eventually(t, func() bool { return len(s.clients("redlock-hints"))+len(s.clients("redlock")) == 0 }, "no connection is left")
}

func TestForeignConnectionsGiveHints(t *testing.T) {
	t.Parallel()
	s := newLive(t)
	n, err := FromDial("foreign", func(context.Context) (redis.Conn, error) {
		// A read timeout must not end a listener that has nothing to hear.
		return redis.DialURL(s.url(), redis.DialReadTimeout(100*time.Millisecond))
	})
	require.NoError(t, err)
	defer n.Close()
	w := wait(t, n, "k")
	w.next()
	listener := s.client("redlock-hints")["id"]
	<-time.After(200 * time.Millisecond) // the silence under test
	w.ask()
	s.do("SET", "k", "v")
	w.next()
	assert.Equal(t, listener, s.client("redlock-hints")["id"])
}

// A dial that hangs holds up none but its own connection.
func TestTheListenersDialIsItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	addr := r.Addr()
	dials, hang := make(chan struct{}, 10), make(chan struct{})
	var dialled atomic.Int64
	n, err := FromDial("foreign", func(context.Context) (redis.Conn, error) {
		dials <- struct{}{}
		if dialled.Add(1) > 1 {
			<-hang
		}
		return redis.Dial("tcp", addr)
	}, DialTimeout(time.Hour))
	require.NoError(t, err)
	defer n.Close()
	defer close(hang)
	require.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	dial := func() {
		select {
		case <-dials:
		case <-time.After(patience):
			require.FailNow(t, "no dial")
		}
	}
	defer wait(t, n, "k").stop()
	dial()
	dial() // hangs
	require.Equal(t, redlock.Granted, do(t, n, release("k", "v")).Outcome)
	r.fail("EVALSHA", "BUSY Redis is busy running a script.") // which costs the connection
	trouble(t, n, release("k", "v"))
	dial()
}
