package redquorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// These tests check the promises to the nanosecond, where the virtual clock allows it. Each message
// takes one leg, so a round trip takes two legs.
const leg = 10 * time.Millisecond

// bubble runs test in virtual time, on five servers.
func bubble(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(leg))
		test(t, w)
	})
}

// open returns the Locker of a new process whose clock gains rate seconds per second.
func open(t *testing.T, w *sim.World, rate float64, opts ...redlock.LockerOption) (*redlock.Locker, *sim.Client) {
	t.Helper()
	c := w.NewClient(rate)
	return sim.Locker(t, c, opts...), c
}

// failures are ways in which a server does not answer.
var failures = []struct {
	name string
	of   func(*sim.Server)
}{
	{"refuses connections", (*sim.Server).Crash},
	{"has vanished", (*sim.Server).Vanish},
	{"hangs", (*sim.Server).Hang},
}

// left returns the number of servers that hold the key of x with a value other than "another".
func left(w *sim.World) (n int) {
	for _, s := range w.Servers() {
		if v, ok := s.Keys()["x"]; ok && v != "another" {
			n++
		}
	}
	return n
}

// TestQuorumScenario: a client takes a lock with a TTL of 10 s and works for 5 s. A second client,
// started at 3 s, is refused at once if it does not retry. With three retries a second apart, it
// gets the lock about 3 s later.
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
		waited = sim.Took(func() {
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
			// The first client has the lock after a round trip and works for 5 s, so its key is
			// deleted at 5.03 s. The second client's tries begin at 3, 4, 5 and 6 s. The try at 5 s
			// is just too early. The last try wins after a round trip, and the release here takes
			// another one.
			const won, release = 2 * leg, 2 * leg
			assert.Equal(t, 3*time.Second+won+release, waited)
		})
	})
}

// TestQuorumP2TokensDoNotFollowOtherClocks: two nodes' clocks are set ahead repeatedly, and new
// processes, which have no clocks to compare, take a lock with these two nodes and a third. If the
// third node accepted tokens as far ahead as the other two, it would accept lower tokens after it
// had forgotten those.
func TestQuorumP2TokensDoNotFollowOtherClocks(t *testing.T) {
	bubble(t, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(time.Millisecond))
		const (
			ttl   = time.Second
			slack = 2 * time.Second // largest distance of a token from a clock
		)
		newcomer := func() *redlock.Locker {
			l, _ := open(t, w, 1, redlock.TTL(ttl), redlock.Fenced(), redlock.MemoryGuard(true))
			return l
		}
		nodes := w.Servers()
		last := int64(0)
		turn := func(retries int) bool {
			k, err := newcomer().Acquire(t.Context(), "x", redlock.Retries(retries))
			if err != nil {
				return false
			}
			require.Greater(t, k.Fence(), last)
			last = k.Fence()
			require.NoError(t, k.Release(t.Context()))
			return true
		}
		require.True(t, turn(100))
		nodes[1].Crash()
		nodes[2].Crash()
		for range 6 {
			for _, n := range nodes[3:] {
				n.Step(slack * 192 / 100)
			}
			turn(3) // the acquisition fails if the clocks differ too much
		}
		nodes[0].Flush()
		nodes[1].Restart()
		nodes[2].Restart()
		nodes[3].Hang()
		nodes[4].Hang()
		require.True(t, turn(100))
	})
}

// TestQuorumP3NoLockIsReturnedAfterItsDeadline: a process stops while it waits for the second of two names, until the
// first has expired. When the process continues, the grant of the second arrives before the timer of
// the first.
func TestQuorumP3NoLockIsReturnedAfterItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(1, 5)
		w.SetNet(sim.Fixed(leg))
		begin := func() (*redlock.Locker, *sim.Client) {
			c := w.NewClient(1)
			l, err := redlock.New(c.Nodes(), sim.Clock(c.Clock()), sim.Wall(w.Now), redlock.MemoryGuard(false), redlock.TTL(10*time.Second),
				sim.Jitter(func(time.Duration) time.Duration { return 0 }), redlock.Patience(time.Hour)) // the process does not count its own stop as an outage
			require.NoError(t, err)
			return l, c
		}
		require.NoError(t, w.Play(time.Hour, func() {
			holder, _ := begin()
			waiter, process := begin()
			second, err := holder.Acquire(t.Context(), "b")
			require.NoError(t, err)
			got := make(chan time.Duration)
			go func() {
				lock, err := waiter.AcquireAll(t.Context(), []string{"a", "b"})
				if !assert.NoError(t, err) {
					close(got)
					return
				}
				got <- lock.Remaining()
			}()
			w.Sleep(9 * time.Second) // the first lock has been renewed in the meantime
			require.NoError(t, second.Release(t.Context()))
			w.Sleep(leg * 3 / 2) // the second lock's vote is won, and its answers are in transit
			process.Pause()
			w.Sleep(9 * time.Second)
			process.Resume()
			assert.Positive(t, <-got)
			holder.Close()
			waiter.Close()
		}))
	})
}

// TestQuorumP3NoPermitIsReturnedAfterItsDeadline: a process stops when it has a slot but does not
// know yet whether locks of another kind exist.
func TestQuorumP3NoPermitIsReturnedAfterItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(1, 5)
		w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Op == protocol.OpKind && l.Reply {
				return 3 * leg, false
			}
			return leg, false
		}})
		c := w.NewClient(1)
		l, err := redlock.New(c.Nodes(), sim.Clock(c.Clock()), sim.Wall(w.Now), redlock.MemoryGuard(false), redlock.TTL(10*time.Second))
		require.NoError(t, err)
		require.NoError(t, w.Play(time.Hour, func() {
			got := make(chan time.Duration)
			go func() {
				lock, err := l.Acquire(t.Context(), "a", redlock.Permits(2))
				if !assert.NoError(t, err) {
					close(got)
					return
				}
				got <- lock.Remaining()
			}()
			w.Sleep(3 * leg)
			c.Pause()
			w.Sleep(10 * time.Second)
			c.Resume()
			assert.Positive(t, <-got)
			l.Close()
		}))
	})
}

// TestQuorumP4LossIsReportedAtTheDeadline: a lock's context ends at its deadline even if servers
// no longer answer, and even if an extension waits for an answer.
func TestQuorumP4LossIsReportedAtTheDeadline(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.995, 1, 1.005} {
		for _, failure := range failures {
			t.Run(fmt.Sprintf("every server %s, clock at %v", failure.name, rate), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *sim.World) {
					l, c := open(t, w, rate, redlock.TTL(10*time.Second))
					start := time.Now()
					lock, err := l.Acquire(t.Context(), "x")
					require.NoError(t, err)
					for _, s := range w.Servers() {
						failure.of(s)
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

// TestQuorumP5MinorityCostsNoTime: with two of five servers out, in any way,
// a lock is taken, extended and released in one round trip each.
func TestQuorumP5MinorityCostsNoTime(t *testing.T) {
	t.Parallel()
	for _, one := range failures {
		for _, other := range failures {
			t.Run(fmt.Sprintf("one %s, one %s", one.name, other.name), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *sim.World) {
					one.of(w.Servers()[0])
					other.of(w.Servers()[3])
					l, _ := open(t, w, 1)
					for range 3 {
						var lock *redlock.Lock
						var err error
						assert.Equal(t, 2*leg, sim.Took(func() { lock, err = l.Acquire(t.Context(), "x") }), "acquire")
						require.NoError(t, err)
						assert.Equal(t, 2*leg, sim.Took(func() { err = lock.Extend(t.Context()) }), "extend")
						require.NoError(t, err)
						assert.Equal(t, 2*leg, sim.Took(func() { err = lock.Release(t.Context()) }), "release")
						require.NoError(t, err)
					}
				})
			})
		}
	}
}

// TestQuorumP5RefusalCostsNoTime: a caller learns in two round trips that a lock is held (the vote,
// and the release, which reports the holder's TTL). It does not wait for the timeout of silent
// servers.
func TestQuorumP5RefusalCostsNoTime(t *testing.T) {
	t.Parallel()
	for _, failure := range failures {
		t.Run("two servers: each "+failure.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *sim.World) {
				holder, _ := open(t, w, 1)
				other, _ := open(t, w, 1)
				_, err := holder.Acquire(t.Context(), "x")
				require.NoError(t, err)
				failure.of(w.Servers()[0])
				failure.of(w.Servers()[3])
				assert.Equal(t, 4*leg, sim.Took(func() { _, err = other.TryAcquire(t.Context(), "x") }))
				assert.ErrorIs(t, err, redlock.ErrHeld)
			})
		})
	}
}

// TestQuorumP5WaiterGetsTheLock: a holder has died, and a minority of servers is dead. The waiter
// gets the lock a TTL after the holder's last request.
func TestQuorumP5WaiterGetsTheLock(t *testing.T) {
	t.Parallel()
	const longestPause = 200 * time.Millisecond // longest pause between two tries
	for _, failure := range failures {
		t.Run("while a server "+failure.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *sim.World) {
				failure.of(w.Servers()[1])
				failure.of(w.Servers()[4])
				holder, c := open(t, w, 1, redlock.TTL(10*time.Second))
				waiter, _ := open(t, w, 1)
				start := time.Now()
				_, err := holder.Acquire(t.Context(), "x")
				require.NoError(t, err)
				c.Pause()
				lock2, err := waiter.Acquire(t.Context(), "x")
				require.NoError(t, err)
				// The key expires a TTL after the SET's arrival. The waiter tries at that time,
				// unless it has a try in progress.
				expiry := 10*time.Second + leg
				assert.GreaterOrEqual(t, time.Since(start), expiry)
				assert.LessOrEqual(t, time.Since(start), expiry+longestPause+6*leg)
				assert.NoError(t, lock2.Release(t.Context()))
			})
		})
	}
}

// TestQuorumP6FailureLeavesNothing: however an acquisition fails, its keys are released as soon as
// the servers are reachable again. If they stay unreachable, the keys expire within a TTL.
func TestQuorumP6FailureLeavesNothing(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	const timeout = 500 * time.Millisecond // default for that TTL
	// rtt: the release reaches all working servers within a round trip after the end of the
	// attempt.
	const rtt = 2 * leg
	rows := []struct {
		name string
		// prepare makes the attempt fail. heal, if not nil, makes the servers reachable again a
		// second after the attempt.
		prepare func(w *sim.World, c *sim.Client, cancel func())
		heal    func(w *sim.World, c *sim.Client)
		err     error
		votes   int           // largest number of keys during the attempt
		after   time.Duration // from the end of the attempt, or heal, to the end of the last key
	}{
		{
			name: "held by another on three servers",
			prepare: func(w *sim.World, _ *sim.Client, _ func()) {
				for _, s := range w.Servers()[:3] {
					s.Set("x", "another", time.Hour)
				}
			},
			err: redlock.ErrHeld, votes: 2, after: 0, // the attempt waited for the refusing servers
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
			name: "all replies and the first releases get lost",
			prepare: func(w *sim.World, _ *sim.Client, _ func()) {
				w.SetNet(sim.Net{Patience: 2 * timeout, // the attempt is over before
					Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
						return leg, l.Reply || l.Op == protocol.OpRelease
					}})
			},
			heal:  func(w *sim.World, _ *sim.Client) { w.SetNet(sim.Fixed(leg)) },
			err:   redlock.ErrNoQuorum,
			votes: 5, after: 2*timeout + leg, // the release fails and is repeated
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
				// No key returns through a late SET or a renewal.
				for range 100 {
					time.Sleep(ttl / 50)
					assert.Zero(t, left(w), "a key has come back")
				}
			})
		})
	}
}

// TestQuorumP6LostLockIsReleased: a lock that was lost, here because three of
// five servers forgot it, does not stay on the other two.
func TestQuorumP6LostLockIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, 1, redlock.TTL(10*time.Second))
		lock, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		for _, s := range w.Servers()[:3] {
			s.Del("x")
		}
		assert.Less(t, sim.Took(func() { <-lock.Context().Done() }), 5*time.Second, "a majority says so, long before the deadline")
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
		time.Sleep(leg + time.Millisecond)
		assert.Zero(t, left(w))
	})
}

// endsWith is a context that ends at the same moment as a lock.
type endsWith struct {
	context.Context
	lock *redlock.Lock
}

// Err implements context.Context.
func (c endsWith) Err() error {
	if !c.lock.Valid() {
		return context.Canceled
	}
	return nil
}

// TestQuorumP6CancelledHandoverLeavesNothing: a waiter gets the lock by handover after its context
// has ended.
func TestQuorumP6CancelledHandoverLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, 1)
		lock, err := l.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		gaveUp := make(chan error)
		go func() {
			_, err := l.Acquire(endsWith{context.Background(), lock}, "x")
			gaveUp <- err
		}()
		synctest.Wait()
		require.NoError(t, lock.Release(t.Context()))
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		time.Sleep(leg + time.Millisecond)
		assert.Zero(t, left(w))
	})
}

// TestQuorumP5MissingRecordFailsNoTry: a majority of servers is up and not in quarantine, but the
// TTL is not on record, because no lock has used it yet, or none for eleven minutes. One try is
// still enough for each kind of lock.
func TestQuorumP5MissingRecordFailsNoTry(t *testing.T) {
	t.Parallel()
	forms := []struct {
		name string
		try  func(ctx context.Context, w *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error)
	}{
		{"plain", func(ctx context.Context, _ *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error) {
			return l.TryAcquire(ctx, "x", redlock.TTL(ttl))
		}},
		{"fenced", func(ctx context.Context, _ *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error) {
			return l.TryAcquire(ctx, "x", redlock.TTL(ttl), redlock.Fenced())
		}},
		{"shared", func(ctx context.Context, _ *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error) {
			return l.TryAcquire(ctx, "x", redlock.TTL(ttl), redlock.Shared())
		}},
		{"permits", func(ctx context.Context, _ *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error) {
			return l.TryAcquire(ctx, "x", redlock.TTL(ttl), redlock.Permits(3))
		}},
		{"names", func(ctx context.Context, _ *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error) {
			return l.TryAcquireAll(ctx, []string{"x", "y", "z"}, redlock.TTL(ttl))
		}},
		{"one try of Acquire", func(ctx context.Context, _ *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error) {
			return l.Acquire(ctx, "x", redlock.TTL(ttl), redlock.Retries(0))
		}},
		{"adopted", func(ctx context.Context, w *sim.World, l *redlock.Locker, ttl time.Duration) (*redlock.Lock, error) {
			const value = "of a holder that has died"
			for _, s := range w.Servers() {
				s.Set("x", value, time.Minute)
			}
			return l.Adopt(ctx, "x", value, redlock.TTL(ttl))
		}},
	}
	for _, form := range forms {
		for _, n := range []int{3, 5} {
			t.Run(fmt.Sprintf("%s, a minority of %d is down", form.name, n), func(t *testing.T) {
				sim.Simulate(t, n, func(t *testing.T, w *sim.World) {
					w.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
						return time.Millisecond + time.Duration(r.Int64N(int64(9*time.Millisecond))), false
					}})
					time.Sleep(time.Hour) // the World's clocks start at an hour
					for _, s := range w.Servers() {
						s.Settle(n, time.Second)
					}
					l, c := open(t, w, 1, redlock.MemoryGuard(true), redlock.NodeTimeout(time.Second), redlock.TTL(time.Minute))
					for i, s := range w.Servers()[:n/2] {
						failures[i%len(failures)].of(s)
					}
					try := func(ttl time.Duration) {
						k, err := form.try(t.Context(), w, l, ttl)
						require.NoError(t, err, "TTL %v", ttl)
						require.NoError(t, k.Release(t.Context()))
					}
					for i := range 20 {
						try(time.Minute + time.Duration(i+1)*time.Second)
					}
					c.Sleep(11 * time.Minute)
					try(time.Minute + 20*time.Second)
				})
			})
		}
	}
}
