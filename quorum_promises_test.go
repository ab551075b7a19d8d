package redquorum_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// The promises to the nanosecond, where the virtual clock allows it. Each
// message takes leg, so that a round trip takes two.
const leg = 10 * time.Millisecond

// bubble runs test in virtual time, on five servers.
func bubble(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(1, 5)
		w.SetNet(sim.Fixed(leg))
		test(t, w)
	})
}

// open returns the Locker of a new process.
func open(t *testing.T, w *sim.World, rate float64, opts ...redlock.Option) (*redlock.Locker, *sim.Client) {
	t.Helper()
	c := w.NewClient(rate)
	l, err := redlock.New(c.Nodes(), append([]redlock.Option{redlock.Clock(c.Clock()), redlock.MemoryGuard(false)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l, c
}

// took runs f and returns how long it took.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// ailments are ways in which a server is no use.
var ailments = []struct {
	name string
	of   func(*sim.Server)
}{
	{"refuses connections", (*sim.Server).Crash},
	{"has vanished", (*sim.Server).Vanish},
	{"hangs", (*sim.Server).Hang},
}

// TestQuorumP4LossIsToldAtTheDeadline although nothing answers any more, and
// although somebody else waits for an answer.
func TestQuorumP4LossIsToldAtTheDeadline(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{slowest, 1, fastest} {
		for _, ailment := range ailments {
			t.Run(fmt.Sprintf("every server %s, clock at %v", ailment.name, rate), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *sim.World) {
					l, c := open(t, w, rate, redlock.TTL(10*time.Second))
					start := time.Now()
					lock, err := l.Acquire(t.Context(), "x")
					require.NoError(t, err)
					for _, s := range w.Servers() {
						ailment.of(s)
					}
					c.Clock().AfterFunc(9*time.Second, func() { lock.Extend(t.Context()) })
					<-lock.Context().Done()

					validity := 10*time.Second - redlock.Drift(10*time.Second)
					want := time.Duration(float64(validity) / rate)
					assert.InDelta(t, want, time.Since(start), float64(time.Microsecond))
					assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
					assert.ErrorIs(t, lock.Release(t.Context()), redlock.ErrLost)
				})
			})
		}
	}
}

// TestQuorumP5MinorityCostsNoTime: whatever is wrong with two of five servers,
// a lock is taken, extended and released in one round trip each.
func TestQuorumP5MinorityCostsNoTime(t *testing.T) {
	t.Parallel()
	for _, one := range ailments {
		for _, other := range ailments {
			t.Run(fmt.Sprintf("one %s, one %s", one.name, other.name), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *sim.World) {
					one.of(w.Servers()[0])
					other.of(w.Servers()[3])
					l, _ := open(t, w, 1)
					for range 3 {
						var lock *redlock.Lock
						var err error
						assert.Equal(t, 2*leg, took(func() { lock, err = l.Acquire(t.Context(), "x") }), "acquire")
						require.NoError(t, err)
						assert.Equal(t, 2*leg, took(func() { err = lock.Extend(t.Context()) }), "extend")
						require.NoError(t, err)
						assert.Equal(t, 2*leg, took(func() { err = lock.Release(t.Context()) }), "release")
						require.NoError(t, err)
					}
				})
			})
		}
	}
}

// TestQuorumP5RefusalCostsNoTime: to learn that a lock is held takes two round
// trips (the vote, and the release that tells the holder's TTL), not the
// timeout of the servers that do not answer.
func TestQuorumP5RefusalCostsNoTime(t *testing.T) {
	t.Parallel()
	for _, ailment := range ailments {
		t.Run("two servers: each "+ailment.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *sim.World) {
				holder, _ := open(t, w, 1)
				other, _ := open(t, w, 1)
				_, err := holder.Acquire(t.Context(), "x")
				require.NoError(t, err)
				ailment.of(w.Servers()[0])
				ailment.of(w.Servers()[3])
				assert.Equal(t, 4*leg, took(func() { _, err = other.TryAcquire(t.Context(), "x") }))
				assert.ErrorIs(t, err, redlock.ErrHeld)
			})
		})
	}
}

// TestQuorumP5WaiterGetsTheLock of a holder that releases, and of one that
// died, with a minority of servers dead.
func TestQuorumP5WaiterGetsTheLock(t *testing.T) {
	t.Parallel()
	const longestWait = 200 * time.Millisecond // between two tries
	for _, ailment := range ailments {
		t.Run("released while a server "+ailment.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *sim.World) {
				ailment.of(w.Servers()[1])
				ailment.of(w.Servers()[4])
				holder, c := open(t, w, 1)
				waiter, _ := open(t, w, 1)
				lock, err := holder.Acquire(t.Context(), "x")
				require.NoError(t, err)
				var released time.Time
				c.Clock().AfterFunc(time.Minute, func() {
					released = time.Now()
					assert.NoError(t, lock.Release(t.Context()))
				})
				lock2, err := waiter.Acquire(t.Context(), "x")
				require.NoError(t, err)
				assert.LessOrEqual(t, time.Since(released), longestWait+6*leg) // a try that just fails, and one that succeeds
				assert.NoError(t, lock2.Release(t.Context()))
			})
		})
		t.Run("abandoned while a server "+ailment.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *sim.World) {
				ailment.of(w.Servers()[1])
				ailment.of(w.Servers()[4])
				holder, c := open(t, w, 1, redlock.TTL(10*time.Second))
				waiter, _ := open(t, w, 1)
				start := time.Now()
				_, err := holder.Acquire(t.Context(), "x")
				require.NoError(t, err)
				c.Pause()
				lock2, err := waiter.Acquire(t.Context(), "x")
				require.NoError(t, err)
				// The key expires a TTL after the SET's arrival. The waiter
				// comes at that time, unless a try of its own is under way just
				// then.
				expiry := 10*time.Second + leg
				assert.GreaterOrEqual(t, time.Since(start), expiry)
				assert.LessOrEqual(t, time.Since(start), expiry+longestWait+6*leg)
				assert.NoError(t, lock2.Release(t.Context()))
			})
		})
	}
}

// TestQuorumP5SplitVotesEnd: contenders who start at the same moment, with no
// server to spare, all get their turn.
func TestQuorumP5SplitVotesEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *sim.World) {
		w.Servers()[1].Hang()
		w.Servers()[4].Crash()
		done := make(chan error, 8)
		start := time.Now()
		for range cap(done) {
			l, _ := open(t, w, 1)
			go func() {
				lock, err := l.Acquire(t.Context(), "x")
				if err == nil {
					err = lock.Release(t.Context())
				}
				done <- err
			}()
		}
		for range cap(done) {
			require.NoError(t, <-done)
		}
		// Each turn is a wait between tries, four round trips and a few collisions.
		assert.Less(t, time.Since(start), time.Duration(cap(done))*500*time.Millisecond)
	})
}

// TestQuorumScenario: a client takes a lock with a TTL of 10 s and works for
// 5 s. A second one, started at 3 s, is refused at once if it does not retry;
// with three retries a second apart it gets the lock about 3 s later.
func TestQuorumScenario(t *testing.T) {
	t.Parallel()
	const lag = 3 * time.Second
	second := func(t *testing.T, w *sim.World, opts ...redlock.Option) (waited time.Duration, err error) {
		first, c1 := open(t, w, 1, redlock.TTL(10*time.Second))
		other, c2 := open(t, w, 1, redlock.TTL(10*time.Second))
		over := make(chan struct{})
		go func() {
			defer close(over)
			lock, err := first.Acquire(t.Context(), "invoice:42")
			if assert.NoError(t, err) {
				c1.Sleep(5 * time.Second)
				assert.NoError(t, lock.Release(t.Context()))
			}
		}()
		c2.Sleep(lag)
		waited = took(func() {
			var lock *redlock.Lock
			if lock, err = other.Acquire(t.Context(), "invoice:42", opts...); err == nil {
				err = lock.Release(t.Context())
			}
		})
		<-over
		return waited, err
	}
	t.Run("without retries", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *sim.World) {
			waited, err := second(t, w, redlock.Retries(0))
			assert.ErrorIs(t, err, redlock.ErrHeld)
			assert.Equal(t, 4*leg, waited, "a round trip to be refused, and one to take back and learn the TTL")
		})
	})
	t.Run("with three retries a second apart", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *sim.World) {
			waited, err := second(t, w, redlock.Retries(3), redlock.RetryInterval(time.Second))
			require.NoError(t, err)
			// The first client has the lock after a round trip and works for 5
			// s, so that its key goes at 5.03 s. The second client's tries
			// begin at 3, 4, 5 and 6 s. That at 5 s comes just too early; the
			// last wins after a round trip, and another one passes for the
			// release here.
			const won, release = 2 * leg, 2 * leg
			assert.Equal(t, 3*time.Second+won+release, waited)
		})
	})
}
