package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// TestAcquireAsksAllNodesAtOnce with one value, which no two attempts share.
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

// TestAcquireCountsValidityFromTheStart: the time that the votes took is used
// up, and so is the drift allowance.
func TestAcquireCountsValidityFromTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = 70 * time.Millisecond
		_, l := puppets(t, 3, func(i int, _ protocol.Op, _ int) answer {
			return answer{outcome: protocol.Granted, after: time.Duration(i) * slow}
		}, redlock.TTL(ttl))
		lock := take(t, l, "x")
		want := ttl - redlock.Drift(ttl) - slow
		assert.Equal(t, want, lock.Remaining())
		assert.True(t, lock.Valid())
		assert.Equal(t, time.Now().Add(want), lock.Until())
	})
}

// TestAcquireCountsAVoteOnce, whatever a broken Node does.
func TestAcquireCountsAVoteOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 5, func(i int, op protocol.Op, _ int) answer {
			if i < 2 {
				return answer{outcome: protocol.Granted, twice: true}
			}
			return answer{outcome: protocol.Failed, err: errors.New("broken"), after: leg} // after both have stuttered
		})
		_, err := l.TryAcquire(t.Context(), "x")
		assert.ErrorIs(t, err, redlock.ErrNoQuorum)
	})
}

// TestAcquireRechecksValidityOnReturn: votes that came in time are worth
// nothing to a process that was paused, or a machine that slept, before it
// could look at them.
func TestAcquireRechecksValidityOnReturn(t *testing.T) {
	t.Parallel()
	for pause, valid := range map[time.Duration]bool{
		ttl - redlock.Drift(ttl) - rtt - 1: true,
		ttl - redlock.Drift(ttl) - rtt:     false,
		time.Hour:                          false,
	} {
		t.Run(pause.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, c := open(t, w, redlock.TTL(ttl))
				time.AfterFunc(leg, c.Pause)
				time.AfterFunc(rtt+pause, c.Resume)
				lock, err := l.TryAcquire(t.Context(), "x")
				if valid {
					require.NoError(t, err)
					assert.Equal(t, time.Duration(1), lock.Remaining())
					return
				}
				assert.Nil(t, lock)
				assert.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.ErrorContains(t, err, "the votes came too late")
				time.Sleep(rtt)
				assert.Zero(t, holding(w, "x"), "what is worth nothing is given back")
			})
		})
	}
	t.Run("a machine that slept", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := clock.NewFake(1)
			_, l := puppets(t, 3, func(i int, op protocol.Op, _ int) answer {
				if i == 1 && op == protocol.OpAcquire {
					c.Step(ttl) // after the first byte was queued
				}
				return grants
			}, redlock.TTL(ttl), timetest.Clock(c))
			_, err := l.TryAcquire(t.Context(), "x")
			assert.ErrorIs(t, err, redlock.ErrNoQuorum)
		})
	})
}

// TestAcquireGivesBackDespiteAnEndedContext: the caller's context bounds the
// waiting and never the cleaning up.
func TestAcquireGivesBackDespiteAnEndedContext(t *testing.T) {
	for _, at := range []time.Duration{1, leg, leg + 1, rtt - 1} {
		t.Run("cancelled after "+at.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(at, cancel)
				var err error
				assert.Equal(t, at, took(func() { _, err = l.TryAcquire(ctx, "x") }), "nobody waits for the cleaning up")
				assert.ErrorIs(t, err, context.Canceled)
				time.Sleep(leg + 1)
				assert.Zero(t, holding(w, "x"))
				time.Sleep(rtt)
				assert.Zero(t, holding(w, "x"), "no SET came behind the release")
			})
		})
	}
}

func TestAcquireWithAnEndedContextAsksNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 3, func(int, protocol.Op, int) answer { return grants })
		_, err := l.TryAcquire(canceled(t), "x")
		assert.ErrorIs(t, err, context.Canceled)
		_, err = l.Acquire(canceled(t), "x")
		assert.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, ps[0].got)
	})
}

// TestAcquiredLockOutlivesItsContext: a context that bounded the waiting does
// not take the lock away.
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

// TestLocalContendersDoNotSplitTheNodes: of many goroutines of one process that
// ask for one name at the same moment exactly one gets it. Without an order
// each could get some of the nodes, and none a quorum.
func TestLocalContendersDoNotSplitTheNodes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		c := w.NewClient(1)
		nodes := c.Nodes()
		for i := range nodes {
			nodes[i] = yielding{nodes[i]}
		}
		l, err := redlock.New(nodes, timetest.Clock(c.Clock()), redlock.MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		for round := range 30 {
			locks := make(chan *redlock.Lock, 30)
			for range cap(locks) {
				go func() {
					lock, err := l.TryAcquire(t.Context(), "x")
					if err != nil {
						assert.ErrorIs(t, err, redlock.ErrHeld)
					}
					locks <- lock
				}()
			}
			var winner *redlock.Lock
			for range cap(locks) {
				if lock := <-locks; lock != nil {
					assert.Nil(t, winner, "two winners in round %d", round)
					winner = lock
				}
			}
			require.NotNil(t, winner, "no winner in round %d", round)
			assert.Equal(t, 5, winner.Votes())
			require.NoError(t, winner.Release(t.Context()))
		}
	})
}

// TestAcquireDecidesAtTheDecisiveReply: for every number of grants, refusals
// and faults, in several orders, the vote ends at the very reply that decides
// it, with the right error; a lost one is taken back on all nodes, and a won
// one counts the votes that come later.
func TestAcquireDecidesAtTheDecisiveReply(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 0))
	for _, n := range []int{1, 2, 3, 4, 5, 7} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			for granted := 0; granted <= n; granted++ {
				for refused := 0; granted+refused <= n; refused++ {
					vote := make([]answer, n)
					for i := range vote {
						switch {
						case i < granted:
							vote[i] = grants
						case i < granted+refused:
							vote[i] = refuses
						default:
							vote[i] = faults[(i+granted)%len(faults)]
						}
					}
					for range 5 {
						synctest.Test(t, func(t *testing.T) {
							t.Logf("%+v", vote) // shown if it fails
							holdVote(t, vote)
						})
						dice.Shuffle(n, func(i, j int) { vote[i], vote[j] = vote[j], vote[i] })
					}
				}
			}
		})
	}
}

// holdVote has node i answer i+1 milliseconds after the start.
func holdVote(t *testing.T, vote []answer) {
	const timeout, undo = nodeTimeout, 100 * time.Microsecond
	n := len(vote)
	quorum := n/2 + 1
	ps, l := puppets(t, n, func(i int, op protocol.Op, _ int) answer {
		a := vote[i]
		if op == protocol.OpRelease {
			return answer{outcome: protocol.Refused, after: undo}
		}
		a.after = time.Duration(i+1) * time.Millisecond
		return a
	}, redlock.TTL(ttl))

	// What must come of it, told reply by reply. Nodes that are not connected
	// say so at the start.
	var granted, refused, faulty, late int
	var mayHold [64]bool
	ends, won, isSplit := time.Duration(-1), false, false
	for instant := 0; instant <= n; instant++ {
		for i, a := range vote {
			switch {
			case a.unsent && instant == 0:
				faulty++
			case a.unsent || a.silent || instant != i+1:
			case ends >= 0 && a.outcome == protocol.Granted:
				late++
			case ends >= 0:
			case a.outcome == protocol.Granted:
				granted++
			case a.outcome == protocol.Refused:
				refused++
			default:
				faulty++
			}
		}
		if ends < 0 && (granted >= quorum || refused+faulty > n-quorum) {
			ends, won = time.Duration(instant)*time.Millisecond, granted >= quorum
			for i, a := range vote {
				came := a.unsent || !a.silent && i+1 <= instant
				mayHold[i] = !came || a.outcome == protocol.Granted || a.outcome == protocol.Unknown
			}
		}
	}
	if ends < 0 { // some never answer
		ends, isSplit = timeout, refused > 0 && granted+refused >= quorum
		faulty = n - granted - refused
		for i, a := range vote {
			mayHold[i] = a.silent || a.outcome == protocol.Granted || a.outcome == protocol.Unknown
		}
	} else if !won && refused > 0 {
		ends += undo // to learn from the nodes that refused who is in the way
	}

	var lock *redlock.Lock
	var err error
	elapsed := took(func() { lock, err = l.VoteOnce(t.Context(), "x") })
	if isSplit { // whatever the silent ones say it is contention, and they need not be waited for
		assert.GreaterOrEqual(t, elapsed, time.Duration(n)*time.Millisecond, "when the vote ended")
		assert.LessOrEqual(t, elapsed, ends, "when the vote ended")
	} else {
		assert.Equal(t, ends, elapsed, "when the vote ended")
	}
	if won {
		require.NoError(t, err)
		assert.Equal(t, granted, lock.Votes(), "votes at the quorum")
		time.Sleep(timeout)
		assert.Equal(t, granted+late, lock.Votes(), "votes at last")
		return
	}
	kind := redlock.ErrHeld
	if faulty > n-quorum {
		kind = redlock.ErrNoQuorum
	}
	assert.ErrorIs(t, err, kind)
	for i, p := range ps {
		acquires, _ := p.requests(protocol.OpAcquire)
		releases, at := p.requests(protocol.OpRelease)
		if assert.Len(t, releases, 1, "node %d must be asked to forget", i) {
			assert.Equal(t, acquires[0].Value, releases[0].Value)
			assert.Equal(t, acquires[0].Key, releases[0].Key)
			assert.Equal(t, mayHold[i], releases[0].MayHold, "node %d may hold the value", i)
			assert.False(t, at[0].After(time.Now()))
		}
	}
}

// TestContentionStaysContention though the nodes that refused break right
// after: another client holds the lock, and waiting makes sense.
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
				_, err := l.TryAcquire(t.Context(), "x")
				isOnly(t, err, test.want)
			})
		})
	}
}

// TestACallerWithAnIntervalKeepsNobodyWaiting: it sleeps on a schedule of its
// own, and a caller behind it in a line would sleep as long.
func TestACallerWithAnIntervalKeepsNobodyWaiting(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		go l.Acquire(t.Context(), "x", redlock.RetryInterval(time.Hour))
		synctest.Wait()
		time.AfterFunc(time.Second, func() { lock.Release(t.Context()) })
		assert.Less(t, took(func() {
			second, err := l.Acquire(t.Context(), "x")
			if assert.NoError(t, err) {
				assert.NoError(t, second.Release(t.Context()))
			}
		}), 2*time.Second)
	})
}

// TestOfThoseWhoTryAtTheSameMomentOneGetsIt, although none waits for a holder and each has got some of
// the votes. They are of processes of their own.
func TestOfThoseWhoTryAtTheSameMomentOneGetsIt(t *testing.T) {
	for name, try := range map[string]func(l *redlock.Locker, ctx context.Context) (*redlock.Lock, error){
		"TryAcquire": func(l *redlock.Locker, ctx context.Context) (*redlock.Lock, error) { return l.TryAcquire(ctx, "x") },
		"Retries(0)": func(l *redlock.Locker, ctx context.Context) (*redlock.Lock, error) {
			return l.Acquire(ctx, "x", redlock.Retries(0))
		},
		"TryAcquireAll": func(l *redlock.Locker, ctx context.Context) (*redlock.Lock, error) {
			return l.TryAcquireAll(ctx, []string{"x", "y"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
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
				for round := range 30 {
					start := time.Now()
					got := make(chan *redlock.Lock, len(all))
					for _, l := range all {
						go func() {
							lock, err := try(l, t.Context())
							if err != nil {
								assert.ErrorIs(t, err, redlock.ErrHeld)
							}
							got <- lock
						}()
					}
					var winner *redlock.Lock
					for range all {
						if lock := <-got; lock != nil {
							assert.Nil(t, winner)
							winner = lock
						}
					}
					require.NotNil(t, winner, "round %d: all are told that it is held", round)
					assert.Less(t, time.Since(start), 500*time.Millisecond, "the node timeout")
					require.NoError(t, winner.Release(t.Context()))
				}
			})
		})
	}
}

// TestCheckFindsWhatAcquireWouldRefuse, and asks no node.
func TestCheckFindsWhatAcquireWouldRefuse(t *testing.T) {
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
