package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// ways are the ways to wait for a lock.
var ways = map[string]func(context.Context, *redlock.Locker, ...redlock.Option) (*redlock.Lock, error){
	"Acquire": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.Acquire(ctx, "x", opts...)
	},
	"AcquireAll": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.AcquireAll(ctx, []string{"x", "y"}, opts...)
	},
	"Fair": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.Acquire(ctx, "x", append(opts, redlock.Fair())...)
	},
	"Fenced": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.Acquire(ctx, "x", append(opts, redlock.Fenced())...)
	},
	"Shared": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.Acquire(ctx, "x", append(opts, redlock.Shared())...)
	},
	"Permits": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.Acquire(ctx, "x", append(opts, redlock.Permits(3))...)
	},
	"RetryInterval": func(ctx context.Context, l *redlock.Locker, opts ...redlock.Option) (*redlock.Lock, error) {
		return l.Acquire(ctx, "x", append(opts, redlock.RetryInterval(100*time.Millisecond))...)
	},
}

// ails are ways in which a server does not answer for a while.
var ails = map[string]struct{ of, heal func(*sim.Server) }{
	"hang":               {(*sim.Server).Hang, (*sim.Server).Resume},
	"refuse connections": {(*sim.Server).Crash, (*sim.Server).Restart},
}

// TestABlipIsNoOutage: a majority does not answer for a moment, and whoever waits gets the lock.
func TestABlipIsNoOutage(t *testing.T) {
	t.Parallel()
	for way, acquire := range ways {
		for how, ail := range ails {
			for _, n := range []int{1, 3, 5} {
				t.Run(fmt.Sprintf("%s, of %d servers a majority: %s", way, n, how), func(t *testing.T) {
					simulate(t, n, func(t *testing.T, w *sim.World) {
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
				})
			}
		}
	}
}

// TestOneTryBearsAPauseOf300Milliseconds, by the defaults.
func TestOneTryBearsAPauseOf300Milliseconds(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		simulateN(t, n, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w)
			for _, s := range w.Servers()[:n/2+1] {
				s.Hang()
				time.AfterFunc(300*time.Millisecond, s.Resume)
			}
			require.NoError(t, take(t, l, "x").Release(t.Context()))
		})
	}
}

func simulateN(t *testing.T, n int, test func(t *testing.T, w *sim.World)) {
	t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) { simulate(t, n, test) })
}

// TestAnOutageIsToldWhenPatienceIsOver, with how long it has lasted.
func TestAnOutageIsToldWhenPatienceIsOver(t *testing.T) {
	t.Parallel()
	for way, acquire := range ways {
		for how, ail := range ails {
			t.Run(way+", a majority: "+how, func(t *testing.T) {
				simulate(t, 3, func(t *testing.T, w *sim.World) {
					l, _ := open(t, w)
					for _, s := range w.Servers()[:2] {
						ail.of(s)
					}
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
						assert.LessOrEqual(t, waited, patience+3*nodeTimeout) // a place in the order, and a vote, and one that began before
					}
				})
			})
		}
	}
}

// TestTheContextEndsTheWaitingThroughAnOutage.
func TestTheContextEndsTheWaitingThroughAnOutage(t *testing.T) {
	for way, acquire := range ways {
		t.Run(way, func(t *testing.T) {
			simulate(t, 3, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				w.Servers()[0].Crash()
				w.Servers()[1].Crash()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				assert.Equal(t, time.Second, took(func() {
					_, err := acquire(ctx, l)
					isOnly(t, err, context.DeadlineExceeded)
					assert.ErrorContains(t, err, "no quorum has answered for ")
				}))
			})
		})
	}
}

// TestContentionIsWaitedOutBesideAnOutage: what is over counts no more, and a holder is no outage.
func TestContentionIsWaitedOutBesideAnOutage(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w)
		held := take(t, holder, "x")
		l, _ := open(t, w)
		got := waits(t.Context(), t, l)
		for range 3 { // of two seconds each
			time.Sleep(2 * time.Second)
			ill := w.Servers()[:2]
			for _, s := range ill {
				s.Hang()
			}
			time.Sleep(2 * time.Second)
			for _, s := range ill {
				s.Resume()
			}
		}
		time.Sleep(time.Minute)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

// TestAnOutageIsToldToManyWhoWaitAtOnce: callers of one process who wait for one name are not told one
// after the other, each after a try of its own.
func TestAnOutageIsToldToManyWhoWaitAtOnce(t *testing.T) {
	const callers = 10_000
	for way, opts := range map[string][]redlock.Option{
		"plain":   nil,
		"permits": {redlock.Permits(2)},
	} {
		t.Run(way, func(t *testing.T) {
			simulate(t, 3, func(t *testing.T, w *sim.World) {
				time.Sleep(time.Hour) // the World's clocks begin with it
				l, _ := open(t, w)
				for _, s := range w.Servers()[:2] {
					s.Hang()
				}
				var all sync.WaitGroup
				assert.LessOrEqual(t, took(func() {
					for range callers {
						all.Go(func() {
							_, err := l.Acquire(t.Context(), "x", opts...)
							if !errors.Is(err, redlock.ErrNoQuorum) {
								assert.ErrorIs(t, err, redlock.ErrNoQuorum)
							}
						})
					}
					all.Wait()
				}), defaultPatience+2*nodeTimeout)

				// What a caller was told says nothing of the next, who comes when the servers answer again.
				for _, s := range w.Servers()[:2] {
					s.Resume()
				}
				lock, err := l.Acquire(t.Context(), "x", append(opts, redlock.Patience(0))...)
				require.NoError(t, err)
				require.NoError(t, lock.Release(t.Context()))
			})
		})
	}
}

// TestABlipIsNoOutageForAReaderThatJoins the session of others of its process, which are there: the nodes
// are asked only whether a writer waits.
func TestABlipIsNoOutageForAReaderThatJoins(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		first := read(t, l, "x")
		time.Sleep(time.Minute)
		for _, s := range w.Servers()[:3] {
			s.Hang()
			time.AfterFunc(800*time.Millisecond, s.Resume)
		}
		second, err := l.Acquire(t.Context(), "x", redlock.Shared())
		require.NoError(t, err)
		assert.Equal(t, first.Value(), second.Value())
	})
}
