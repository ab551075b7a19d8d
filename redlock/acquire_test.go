package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestAcquireAsksAllNodesAtOnce: the requests have one value, which is unique to the attempt.
func TestAcquireAsksAllNodesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 5, func(int, protocol.Op, int) answer { return grants }, redlock.TTL(1234*time.Millisecond+567*time.Microsecond), redlock.Prefix("p:"))
		start := time.Now()
		first := take(t, l, "x")
		require.NoError(t, first.Release(t.Context()))
		second := take(t, l, "x")
		for _, p := range ps {
			reqs, at := p.requests(protocol.OpAcquire)
			require.Len(t, reqs, 2)
			assert.Equal(t, start, at[0])
			assert.Equal(t, "p:x", reqs[0].Key)
			assert.Equal(t, first.Value(), reqs[0].Value)
			assert.Equal(t, second.Value(), reqs[1].Value)
			assert.Equal(t, 1234*time.Millisecond, reqs[0].TTL, "Redis counts whole milliseconds")
			assert.Equal(t, nodeTimeout, reqs[0].Timeout)
		}
		assert.NotEqual(t, first.Value(), second.Value())
	})
}

func TestAcquireWithAnEndedContextAsksNoNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 3, func(int, protocol.Op, int) answer { return grants })
		assert.ErrorIs(t, errOf(l.TryAcquire(canceled(t), "x")), context.Canceled)
		assert.ErrorIs(t, errOf(l.Acquire(canceled(t), "x")), context.Canceled)
		assert.Empty(t, ps[0].got)
	})
}

// TestAcquiredLockOutlivesItsContext: a context that limited the wait does not end the lock.
func TestAcquiredLockOutlivesItsContext(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		type key struct{}
		l, _ := open(t, w)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		lock, err := l.Acquire(ctx, "x")
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Hour)
		assert.NoError(t, lock.Context().Err())
		assert.True(t, lock.Valid())
		assert.Equal(t, "value", lock.Context().Value(key{}), "but its values are the caller's")
	})
}

// oneOf makes all Lockers try at the same moment, and returns the winner's lock.
func oneOf(t *testing.T, all []*redlock.Locker, try func(*redlock.Locker) (*redlock.Lock, error)) (winner *redlock.Lock) {
	got := make(chan *redlock.Lock, len(all))
	for _, l := range all {
		go func() {
			lock, err := try(l)
			if err != nil {
				assert.ErrorIs(t, err, redlock.ErrHeld)
			}
			got <- lock
		}()
	}
	for range all {
		if lock := <-got; lock != nil {
			assert.Nil(t, winner)
			winner = lock
		}
	}
	require.NotNil(t, winner, "all are told that it is held")
	return winner
}

// TestContentionStaysContention: the refusing nodes break right afterwards, but another client
// holds the lock, so waiting can help.
func TestContentionStaysContention(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		release answer
		want    error
	}{
		"connection lost": {answer{outcome: protocol.Failed, err: errors.New("connection lost")}, redlock.ErrHeld},
		"not sent":        {answer{unsent: true, err: errors.New("queue full")}, redlock.ErrHeld},
		"no answer":       {answer{silent: true}, redlock.ErrHeld},
		"no lock at all":  {answer{outcome: protocol.Failed, err: protocol.ErrWrongType}, redlock.ErrNoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, l := puppets(t, 3, func(_ int, op protocol.Op, _ int) answer {
					if op == protocol.OpAcquire {
						return refuses
					}
					return test.release
				})
				isOnly(t, errOf(l.TryAcquire(t.Context(), "x")), test.want)
			})
		})
	}
}

// TestCallerKeepsItsRetryInterval: the interval stays the same even if the lock is released in the
// caller's process. The caller delays no other caller: in a line, the next caller would have to
// sleep as long.
func TestCallerKeepsItsRetryInterval(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		start := time.Now()
		late := waits(t.Context(), t, l, redlock.RetryInterval(time.Minute))
		time.AfterFunc(time.Second, func() { lock.Release(t.Context()) })
		assert.NoError(t, waited(t, l, "x").Release(t.Context()))
		assert.Less(t, time.Since(start), 2*time.Second)
		<-late
		assert.Equal(t, time.Minute+rtt, time.Since(start))
	})
}

// TestOneOfConcurrentTriesWins: tries of different processes split the votes, and none of them
// waits for a holder.
func TestOneOfConcurrentTriesWins(t *testing.T) {
	for name, try := range map[string]func(l *redlock.Locker) (*redlock.Lock, error){
		"TryAcquire": func(l *redlock.Locker) (*redlock.Lock, error) { return l.TryAcquire(context.Background(), "x") },
		"Retries(0)": func(l *redlock.Locker) (*redlock.Lock, error) {
			return l.Acquire(context.Background(), "x", redlock.Retries(0))
		},
		"TryAcquireAll": func(l *redlock.Locker) (*redlock.Lock, error) { return l.TryAcquireAll(context.Background(), abc) },
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			net := sim.Fixed(near)
			net.Travel = func(l sim.Leg, dice *rand.Rand) (time.Duration, bool) {
				return near/2 + time.Duration(dice.Int64N(int64(2*near))), false
			}
			w.SetNet(net)
			var all []*redlock.Locker
			for range 4 {
				l, _ := open(t, w)
				all = append(all, l)
			}
			for range 30 {
				start := time.Now()
				winner := oneOf(t, all, try)
				assert.Less(t, time.Since(start), 500*time.Millisecond, "the node timeout")
				require.NoError(t, winner.Release(t.Context()))
			}
		})
	}
}

// TestCheckFindsOptionsThatAcquireRefuses: Check sends no request to a node.
func TestCheckFindsOptionsThatAcquireRefuses(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		assert.NoError(t, l.Check())
		assert.NoError(t, l.Check(redlock.Fair(), redlock.TTL(time.Minute)))
		for _, opts := range [][]redlock.Option{{redlock.TTL(-1)}, {redlock.Permits(0)}, {redlock.Option{}}, {redlock.TTL(time.Second), redlock.NodeTimeout(time.Hour)}} {
			_, err := l.TryAcquire(t.Context(), "x", opts...)
			require.Error(t, err)
			assert.EqualError(t, l.Check(opts...), err.Error())
		}
		assert.Empty(t, r.steps)
		require.NoError(t, l.Close())
		assert.ErrorIs(t, l.Check(), redlock.ErrClosed)
	})
}

// TestRetriesAreCountedAndKeepTheInterval: number and interval are exact, in contention and in an
// outage.
func TestRetriesAreCountedAndKeepTheInterval(t *testing.T) {
	t.Parallel()
	for _, refusal := range []answer{refuses, faults[0], faults[2]} {
		for _, retries := range []int{0, 1, 3} {
			synctest.Test(t, func(t *testing.T) {
				ps, l := puppets(t, 3, func(int, protocol.Op, int) answer { return refusal })
				start := time.Now()
				_, err := l.Acquire(t.Context(), "x", redlock.Retries(retries), redlock.RetryInterval(time.Second))
				kind := redlock.ErrNoQuorum
				if refusal.outcome == protocol.Refused {
					kind = redlock.ErrHeld
				}
				isOnly(t, err, kind)
				reqs, at := ps[0].requests(protocol.OpAcquire)
				require.Len(t, at, 1+retries)
				values := map[string]bool{}
				for i := range at {
					assert.Equal(t, time.Duration(i)*time.Second, at[i].Sub(start))
					values[reqs[i].Value] = true
				}
				assert.Len(t, values, 1+retries, "a try must not meet the value of the one before")
				assert.Equal(t, time.Duration(retries)*time.Second, time.Since(start), "no wait follows the last try")
			})
		}
	}
}

// ways lists the ways to wait for a lock.
var ways = map[string]func(context.Context, *redlock.Locker, ...redlock.Option) (*redlock.Lock, error){
	"AcquireAll": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.AcquireAll(ctx, []string{"x", "y"}, opts...)
	},
	"Acquire":       acquireX(),
	"Fair":          acquireX(redlock.Fair()),
	"Fenced":        acquireX(redlock.Fenced()),
	"Shared":        acquireX(redlock.Shared()),
	"Permits":       acquireX(redlock.Permits(3)),
	"RetryInterval": acquireX(redlock.RetryInterval(100 * time.Millisecond)),
}

func acquireX(with ...redlock.Option) func(context.Context, *redlock.Locker, ...redlock.Option) (*redlock.Lock, error) {
	return func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.Acquire(ctx, "x", append(opts, with...)...)
	}
}

// ails lists ways in which a server does not answer for a while.
var ails = map[string]struct{ of, heal func(*sim.Server) }{
	"hang":               {(*sim.Server).Hang, (*sim.Server).Resume},
	"refuse connections": {(*sim.Server).Crash, (*sim.Server).Restart},
}

// TestHiccupIsNotAnOutage: a majority does not answer for a moment, and every waiter gets the lock.
func TestHiccupIsNotAnOutage(t *testing.T) {
	t.Parallel()
	for way, acquire := range ways {
		for how, ail := range ails {
			for _, n := range []int{1, 3, 5} {
				simulateCase(t, fmt.Sprintf("%s, of %d servers a majority: %s", way, n, how), n, func(t *testing.T, w *sim.World) {
					l, _ := open(t, w)
					for _, blip := range []time.Duration{80, 120, 300, 500, 2500} {
						blip *= time.Millisecond
						ill := w.Servers()[:n/2+1]
						for _, s := range ill {
							ail.of(s)
						}
						time.AfterFunc(blip, func() {
							for _, s := range ill {
								ail.heal(s)
							}
						})
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
						var k *redlock.Lock
						assert.LessOrEqual(t, took(func() {
							var err error
							k, err = acquire(ctx, l)
							require.NoError(t, err, "%v", blip)
						}), blip+time.Second)
						cancel()
						require.NoError(t, k.Release(t.Context()))
					}
				})
			}
		}
	}
}

// TestOneTryBearsAPauseOf300Milliseconds: the defaults tolerate a pause of the servers.
func TestOneTryBearsAPauseOf300Milliseconds(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		simulateCase(t, fmt.Sprint(n, " servers"), n, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w)
			for _, s := range w.Servers()[:n/2+1] {
				s.Hang()
				time.AfterFunc(300*time.Millisecond, s.Resume)
			}
			require.NoError(t, take(t, l, "x").Release(t.Context()))
		})
	}
}

// TestOutageIsReportedAfterPatience: the error has the duration of the outage. If the context ends
// first, the outage is reported then.
func TestOutageIsReportedAfterPatience(t *testing.T) {
	t.Parallel()
	for way, acquire := range ways {
		for how, ail := range ails {
			simulateCase(t, way+", a majority: "+how, 3, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				for _, s := range w.Servers()[:2] {
					ail.of(s)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				assert.Equal(t, time.Second, took(func() {
					_, err := acquire(ctx, l)
					isOnly(t, err, context.DeadlineExceeded)
					if how != "hang" { // the first attempt has ended
						assert.ErrorContains(t, err, "no quorum has answered for ")
					}
				}))
				cancel()
				for _, patience := range []time.Duration{0, defaultPatience, 20 * time.Second} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					waited := took(func() {
						_, err := acquire(ctx, l, redlock.Patience(patience))
						isOnly(t, err, redlock.ErrNoQuorum)
						var failure *redlock.QuorumError
						if assert.ErrorAs(t, err, &failure) {
							assert.GreaterOrEqual(t, failure.Outage, patience)
						}
						if patience > 0 {
							assert.ErrorContains(t, err, "no quorum has answered for ")
						}
					})
					cancel()
					assert.GreaterOrEqual(t, waited, patience)
					assert.LessOrEqual(t, waited, patience+3*nodeTimeout) // a request to the queue, an attempt, and an earlier attempt
				}
			})
		}
	}
}

// TestWaitEndsTheWait: the error is that a client holds the lock or that there is an outage,
// because the caller's context has not ended.
func TestWaitEndsTheWait(t *testing.T) {
	t.Parallel()
	for way, acquire := range ways {
		simulateCase(t, way+", held", 3, func(t *testing.T, w *sim.World) {
			l, other := two(t, w)
			var locks []*redlock.Lock
			for range 3 { // one lock is enough, except for Permits(3)
				lock, err := other.TryAcquire(t.Context(), "x", redlock.Permits(3))
				require.NoError(t, err)
				locks = append(locks, lock)
			}
			var err error
			assert.Equal(t, time.Minute, took(func() { err = errOf(acquire(t.Context(), l, redlock.Wait(time.Minute))) }))
			isOnly(t, err, redlock.ErrHeld)
			assert.ErrorContains(t, err, "waited 1m0s")

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			assert.Equal(t, time.Second, took(func() { err = errOf(acquire(ctx, l, redlock.Wait(time.Minute))) }))
			isOnly(t, err, context.DeadlineExceeded)

			time.AfterFunc(time.Second, func() {
				for _, lock := range locks {
					assert.NoError(t, lock.Release(t.Context()))
				}
			})
			lock, err := acquire(t.Context(), l, redlock.Wait(time.Minute))
			require.NoError(t, err)
			time.Sleep(time.Hour)
			assert.True(t, lock.Valid(), "Wait does not bound the time of the lock")
		})
		for how, ail := range ails {
			simulateCase(t, way+", a majority: "+how, 3, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				for _, s := range w.Servers()[:2] {
					ail.of(s)
				}
				for _, d := range []time.Duration{100 * time.Millisecond, time.Second} {
					assert.Equal(t, d, took(func() { isOnly(t, errOf(acquire(t.Context(), l, redlock.Wait(d))), redlock.ErrNoQuorum) }))
				}
			})
		}
	}
}

// TestNestedLocksFailAtOnce: a nested lock would wait for itself.
func TestNestedLocksFailAtOnce(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, other := two(t, w)
		outer := map[string]context.Context{}
		a, err := l.AcquireAll(t.Context(), []string{"x", "y"})
		require.NoError(t, err)
		b, err := l.Acquire(a.Context(), "z")
		require.NoError(t, err)
		bound, cancel := b.Bind(t.Context())
		defer cancel()
		outer["x"], outer["y"], outer["z"] = context.WithoutCancel(b.Context()), a.Context(), bound
		assert.Same(t, b, redlock.FromContext(bound))
		assert.Same(t, a, redlock.FromContext(a.Context()))
		assert.Nil(t, redlock.FromContext(t.Context()))
		for name, ctx := range outer {
			for _, err := range []error{
				errOf(l.Acquire(ctx, name)), errOf(l.AcquireAll(ctx, []string{"other", name})), errOf(l.Acquire(ctx, name, redlock.Shared())),
				errOf(l.Acquire(ctx, name, redlock.Permits(2))), l.Do(ctx, name, func(context.Context) error { panic("it runs") }),
			} {
				assert.ErrorContains(t, err, `"`+name+`": the context runs under this lock already`)
			}
			isOnly(t, errOf(l.TryAcquire(ctx, name)), redlock.ErrHeld)
			isOnly(t, errOf(l.Acquire(ctx, name, redlock.Retries(0))), redlock.ErrHeld)
			isOnly(t, errOf(other.Acquire(ctx, name, redlock.Wait(time.Second))), redlock.ErrHeld)
		}

		require.NoError(t, b.Downgrade(t.Context()))
		reader, err := l.Acquire(b.Context(), "z", redlock.Shared())
		require.NoError(t, err)
		assert.ErrorContains(t, errOf(l.Acquire(reader.Context(), "z")), "not re-entrant")
		permit, err := l.Acquire(t.Context(), "p", redlock.Permits(2))
		require.NoError(t, err)
		_, err = l.Acquire(permit.Context(), "p", redlock.Permits(2))
		require.NoError(t, err)

		after := context.WithoutCancel(a.Context())
		require.NoError(t, a.Release(t.Context()))
		_, err = l.Acquire(after, "x")
		require.NoError(t, err, "the lock has ended")
	})
}

// TestOutageIsReportedToAllWaitersAtOnce: one attempt reports the outage to all waiters of a name.
// A caller that arrives after the servers answer again gets no error.
func TestOutageIsReportedToAllWaitersAtOnce(t *testing.T) {
	for way, opts := range map[string][]redlock.Option{"plain": nil, "permits": {redlock.Permits(2)}} {
		simulateCase(t, way, 3, func(t *testing.T, w *sim.World) {
			time.Sleep(time.Hour) // the World's clocks start at an hour
			l, _ := open(t, w)
			onEach(w.Servers()[:2], (*sim.Server).Hang)
			var all sync.WaitGroup
			assert.LessOrEqual(t, took(func() {
				for range 2000 {
					all.Go(func() {
						_, err := l.Acquire(t.Context(), "x", opts...)
						if !errors.Is(err, redlock.ErrNoQuorum) {
							assert.ErrorIs(t, err, redlock.ErrNoQuorum)
						}
					})
				}
				all.Wait()
			}), defaultPatience+2*nodeTimeout)
			onEach(w.Servers()[:2], (*sim.Server).Resume)
			require.NoError(t, waited(t, l, "x", append(opts, redlock.Patience(0))...).Release(t.Context()))
		})
	}
}

// TestHiccupIsNotAnOutageForAJoiningReader: the reader joins the readers of its process, which hold
// the lock, so it asks the nodes only whether a writer waits.
func TestHiccupIsNotAnOutageForAJoiningReader(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		first := read(t, l, "x")
		time.Sleep(time.Minute)
		for _, s := range w.Servers()[:3] {
			s.Hang()
			time.AfterFunc(800*time.Millisecond, s.Resume)
		}
		second := waited(t, l, "x", redlock.Shared())
		assert.Equal(t, first.Value(), second.Value())
	})
}

// TestContentionAlternatesWithAnOutage: an outage that has ended no longer counts, and a held lock
// is not an outage.
func TestContentionAlternatesWithAnOutage(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w)
		held := take(t, holder, "x")
		l, _ := open(t, w)
		got := waits(t.Context(), t, l)
		for range 3 { // each outage lasts two seconds
			time.Sleep(2 * time.Second)
			ill := w.Servers()[:2]
			onEach(ill, (*sim.Server).Hang)
			time.Sleep(2 * time.Second)
			onEach(ill, (*sim.Server).Resume)
		}
		time.Sleep(time.Minute)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}
