package redquorum_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// left returns how many servers hold the key of x with a value other than
// "another".
func left(w *sim.World) (n int) {
	for _, s := range w.Servers() {
		if v, ok := s.Keys()["x"]; ok && v != "another" {
			n++
		}
	}
	return n
}

// TestQuorumP6FailureLeavesNothing: whichever way an acquisition fails, what
// it took is given back as soon as the servers can be reached, and would not
// outlive a TTL if they could not.
func TestQuorumP6FailureLeavesNothing(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	const timeout = ttl / 100
	// rtt: the release has reached all servers that work a round trip after the
	// attempt's end.
	const rtt = 2 * leg
	rows := []struct {
		name string
		// prepare makes the attempt fail; heal, if not nil, lets the servers be
		// reached again, a second after the attempt.
		prepare func(w *sim.World, c *sim.Client, cancel func())
		heal    func(w *sim.World, c *sim.Client)
		err     error
		votes   int           // the most keys that there were during the attempt
		after   time.Duration // from the attempt's end, or healing, to the last key's
	}{
		{
			name: "held by another on three servers",
			prepare: func(w *sim.World, _ *sim.Client, _ func()) {
				for _, s := range w.Servers()[:3] {
					s.Set("x", "another", time.Hour)
				}
			},
			err: redlock.ErrHeld, votes: 2, after: 0, // refused servers were waited for
		},
		{
			name: "three servers are dead",
			prepare: func(w *sim.World, _ *sim.Client, _ func()) {
				for _, s := range w.Servers()[:3] {
					s.Crash()
				}
			},
			err: redlock.ErrNoQuorum, votes: 0, after: leg + leg, // the SETs are still on their way
		},
		{
			name:    "the context ends while the SETs are on their way",
			prepare: func(_ *sim.World, c *sim.Client, cancel func()) { c.Clock().AfterFunc(leg/2, cancel) },
			err:     context.Canceled, votes: 0, after: rtt,
		},
		{
			name:    "the context ends while the replies are on their way",
			prepare: func(_ *sim.World, c *sim.Client, cancel func()) { c.Clock().AfterFunc(leg+leg/2, cancel) },
			err:     context.Canceled, votes: 5, after: leg,
		},
		{
			name: "three servers hang, and go on later",
			prepare: func(w *sim.World, _ *sim.Client, _ func()) {
				for _, s := range w.Servers()[:3] {
					s.Hang()
				}
			},
			heal: func(w *sim.World, _ *sim.Client) {
				for _, s := range w.Servers()[:3] {
					s.Resume()
				}
			},
			err: redlock.ErrNoQuorum, votes: 2, after: 0, // SET and release stand behind each other
		},
		{
			name: "all replies and the first releases get lost",
			prepare: func(w *sim.World, _ *sim.Client, _ func()) {
				w.SetNet(sim.Net{Patience: time.Second / 2, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
					return leg, l.Reply || l.Op == redlock.OpRelease
				}})
			},
			heal:  func(w *sim.World, _ *sim.Client) { w.SetNet(sim.Fixed(leg)) },
			err:   redlock.ErrNoQuorum,
			votes: 5, after: time.Second/2 + timeout + leg, // noticed, and repeated
		},
		{
			name: "three servers crash with the SETs done and the replies under way",
			prepare: func(w *sim.World, c *sim.Client, _ func()) {
				w.SetNet(sim.Net{Patience: time.Second / 2, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
					return leg, l.Reply && l.Node < 3
				}})
				c.Clock().AfterFunc(leg+leg/2, func() {
					for _, s := range w.Servers()[:3] {
						s.Crash()
					}
				})
			},
			heal: func(w *sim.World, _ *sim.Client) {
				w.SetNet(sim.Fixed(leg))
				for _, s := range w.Servers()[:3] {
					s.Restart()
				}
			},
			err: redlock.ErrNoQuorum, votes: 5, after: leg,
		},
		{
			name: "the process is paused until the votes are worth nothing",
			prepare: func(_ *sim.World, c *sim.Client, _ func()) {
				c.Clock().AfterFunc(leg, c.Pause)
				time.AfterFunc(ttl-time.Millisecond, c.Resume)
			},
			err: redlock.ErrNoQuorum, votes: 5, after: leg,
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *sim.World) {
				l, c := open(t, w, 1, redlock.TTL(ttl))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				row.prepare(w, c, cancel)
				var err error
				over := make(chan struct{})
				go func() {
					defer close(over)
					_, err = l.TryAcquire(ctx, "x")
				}()
				votes := 0
				for trying := true; trying; {
					select {
					case <-over:
						trying = false
					case <-time.After(leg / 4):
						votes = max(votes, left(w))
					}
				}
				require.ErrorIs(t, err, row.err)
				assert.Equal(t, row.votes, votes, "what the attempt took")
				if row.heal != nil {
					time.Sleep(time.Second)
					row.heal(w, c)
				}
				time.Sleep(row.after + time.Millisecond)
				assert.Zero(t, left(w), "keys are left")
				// Nothing comes back: no late SET, no renewal.
				for range 100 {
					time.Sleep(ttl / 50)
					assert.Zero(t, left(w), "a key has come back")
				}
			})
		})
	}
}

// TestQuorumP6CrashBlocksForOneTTL: a process that dies, while it acquires or
// while it holds, blocks others until a TTL after its last sign of life.
func TestQuorumP6CrashBlocksForOneTTL(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	for name, life := range map[string]time.Duration{
		"while the SETs are on their way": leg / 2,
		"while it holds":                  2 * ttl,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *sim.World) {
				l, c := open(t, w, 1, redlock.TTL(ttl))
				go l.Acquire(t.Context(), "x")
				time.Sleep(life)
				c.Pause() // for good
				time.Sleep(leg)
				assert.Equal(t, 5, left(w))
				time.Sleep(ttl)
				assert.Zero(t, left(w))
			})
		})
	}
}

// TestQuorumP6LostLockIsGivenBack: a lock that was lost, here because three of
// five servers forgot it, does not stay on the other two.
func TestQuorumP6LostLockIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, 1, redlock.TTL(10*time.Second))
		lock, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		for _, s := range w.Servers()[:3] {
			s.Del("x")
		}
		assert.Less(t, took(func() { <-lock.Context().Done() }), 5*time.Second, "a majority says so, long before the deadline")
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
		time.Sleep(leg + time.Millisecond)
		assert.Zero(t, left(w))
	})
}
