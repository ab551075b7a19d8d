package redlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// abandoned returns the value of a lock whose holder has died.
func abandoned(t *testing.T, w *sim.World, name string, opts ...redlock.LockerOption) string {
	l, c := open(t, w, opts...)
	k := take(t, l, name)
	time.Sleep(leg) // all votes have arrived
	c.Crash()
	return k.Value()
}

func TestAnotherProcessReleasesALockByItsValue(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "p:x", redlock.Owner("a worker that died"))
		l, _ := open(t, w, redlock.Prefix("p:"))
		isHeld(t, l, "x")
		isOnly(t, l.ReleaseValue(t.Context(), "x", value[:40]), redlock.ErrLost)
		isOnly(t, l.ReleaseValue(t.Context(), "x", value+"x"), redlock.ErrLost)
		assert.Equal(t, 5, holding(w, "p:x"), "only the whole value counts")
		assert.Equal(t, rtt, took(func() { require.NoError(t, l.ReleaseValue(t.Context(), "x", value)) }))
		assert.Zero(t, holding(w, "p:x"))
		isOnly(t, l.ReleaseValue(t.Context(), "x", value), redlock.ErrLost)
		require.NoError(t, take(t, l, "x").Release(t.Context()))
	})
}

// TestReleaseByValueOutlivesItsCaller: a node that could not be reached is released later.
func TestReleaseByValueOutlivesItsCaller(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		l, _ := open(t, w)
		isOnly(t, l.ReleaseValue(canceled(t), "x", value), context.Canceled)
		time.Sleep(rtt)
		assert.Zero(t, holding(w, "x"), "ctx bounds the waiting, not the release")

		value = abandoned(t, w, "y")
		onEach(w.Servers()[:3], (*sim.Server).Hang)
		isOnly(t, l.ReleaseValue(t.Context(), "y", value), redlock.ErrNoQuorum)
		onEach(w.Servers()[:3], (*sim.Server).Resume)
		time.Sleep(rtt)
		assert.Zero(t, holding(w, "y"))
	})
}

// adopt adopts a lock. It calls Context at once, like sim.Take.
func adopt(t *testing.T, l *redlock.Locker, name, value string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.Adopt(t.Context(), name, value, opts...)
	require.NoError(t, err)
	k.Context()
	return k
}

func cannotAdopt(t *testing.T, l *redlock.Locker, name, value string, opts ...redlock.Option) error {
	t.Helper()
	k, err := l.Adopt(t.Context(), name, value, opts...)
	assert.Nil(t, k)
	return err
}

func TestAdoptedLockIsLikeAnyOther(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "p:x")
		seen := &recorder{}
		l, _ := open(t, w, redlock.Prefix("p:"), redlock.Observe(seen))
		time.Sleep(3 * time.Second)
		var k *redlock.Lock
		assert.Equal(t, rtt, took(func() { k = adopt(t, l, "x", value) }))
		assert.Equal(t, ttl-redlock.Drift(ttl)-rtt, k.Remaining())
		assert.Equal(t, value, k.Value())
		assert.Equal(t, "x", k.Name())
		time.Sleep(leg)
		assert.Equal(t, 5, k.Votes())
		other, _ := open(t, w, redlock.Prefix("p:"))
		for range 100 {
			time.Sleep(ttl / 10)
			require.True(t, k.Valid())
			isHeld(t, other, "x")
		}
		require.NoError(t, k.Extend(t.Context()))
		require.NoError(t, k.Release(t.Context()))
		require.ErrorIs(t, context.Cause(k.Context()), redlock.ErrReleased)
		assert.Zero(t, holding(w, "p:x"))
		isOnly(t, cannotAdopt(t, l, "x", value), redlock.ErrLost)
		assert.Zero(t, holding(w, "p:x"), "an adoption makes no key")
		kinds := map[redlock.EventKind]int{}
		for _, e := range seen.take() {
			kinds[e.Kind]++
		}
		assert.Equal(t, 1, kinds[redlock.EventAcquired])
		assert.Equal(t, 1, kinds[redlock.EventReleased])
		assert.Equal(t, 1, kinds[redlock.EventNotAcquired])
		assert.Greater(t, kinds[redlock.EventExtended], 20)
	})
}

// TestHolderCannotShortenAnAdoptedLock: the adopted lock has a longer TTL, and the holder continues
// with renewals, as a reader, or by the repair of one of several names.
func TestHolderCannotShortenAnAdoptedLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const long = time.Hour
		adopter, adopts := open(t, w)
		promised := func(name, value string) (end time.Time) {
			end = time.Now().Add(long - redlock.Drift(long))
			adopt(t, adopter, name, value, redlock.TTL(long))
			return end
		}
		l, c := open(t, w)
		k, becomes := take(t, l, "x"), take(t, l, "w")
		set, err := l.AcquireAll(t.Context(), []string{"y", "z"})
		require.NoError(t, err)
		ends := promised("w", becomes.Value())
		promised("x", k.Value())
		promised("y", set.Value())
		adopts.Crash()
		w.Servers()[0].Del("z")
		require.NoError(t, becomes.Downgrade(t.Context()))
		time.Sleep(10 * ttl)
		assert.Equal(t, 5, holding(w, "z"), "the node was given it again")
		require.True(t, k.Valid() && becomes.Valid() && set.Valid())
		c.Crash()

		other, _ := open(t, w)
		time.Sleep(time.Until(ends) - 3*rtt)
		for _, name := range []string{"x", "y", "w"} {
			assert.Equal(t, 5, holding(w, name), name)
			isHeld(t, other, name)
		}
		assert.Zero(t, holding(w, "z"))
		time.Sleep(redlock.Drift(long))
		require.NoError(t, take(t, other, "x").Release(t.Context()))
	})
}

func TestAdoptionNeedsAQuorum(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		first, c := open(t, w)
		w.Servers()[0].Hang()
		w.Servers()[1].Del("x")
		assert.Equal(t, rtt, took(func() { adopt(t, first, "x", value) }))
		c.Crash()
		l, _ := open(t, w)
		w.Servers()[2].Hang()
		isOnly(t, cannotAdopt(t, l, "x", value), redlock.ErrNoQuorum)
		w.Servers()[0].Resume()
		w.Servers()[2].Resume()
		w.Servers()[3].Set("x", "another", time.Hour)
		w.Servers()[4].Del("x")
		isOnly(t, cannotAdopt(t, l, "x", value), redlock.ErrLost)

		w.SetNet(sim.Net{Patience: time.Hour, Travel: slowNode(4, 4*leg)})
		w.Servers()[0].Crash()
		w.Servers()[2].Del("x")
		isOnly(t, cannotAdopt(t, l, "x", value), redlock.ErrLost) // the slow node makes it a majority
	})
}

// TestAdoptionIsOnRecord: a node that forgets a lock has no vote for as long as the lock may live
// after its adoption.
func TestAdoptionIsOnRecord(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 1)
		k := take(t, ls[0], "x", redlock.Renew(false))
		adopter, c := guarded(t, w)
		take(t, adopter, "first")
		const long = 10 * time.Minute
		assert.Equal(t, 3*rtt, took(func() { adopt(t, adopter, "x", k.Value(), redlock.TTL(long)) }),
			"the TTL is entered before the votes that count")
		adopted := time.Now()
		c.Crash()
		time.Sleep(time.Second)
		forget(w.Servers()[:3]...)
		third, _ := guarded(t, w)
		other := waited(t, third, "x")
		assert.Greater(t, time.Since(adopted), long)
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestAdoptedLockHasNoToken: it is not handed over to a caller that needs a token. Later tokens are
// above the token of its holder.
func TestAdoptedLockHasNoToken(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		holder, c := open(t, w, redlock.Fenced())
		k := take(t, holder, "x")
		before := k.Fence()
		require.Positive(t, before)
		c.Crash()
		l, _ := open(t, w, redlock.Fenced(), longest)
		adopted := adopt(t, l, "x", k.Value(), redlock.Fenced())
		assert.Zero(t, adopted.Fence())
		got := waits(t.Context(), t, l)
		time.Sleep(time.Millisecond)
		require.NoError(t, adopted.Release(t.Context()))
		next := <-got
		assert.Greater(t, next.Fence(), before)
		assert.NotEqual(t, k.Value(), next.Value())
		require.NoError(t, next.Release(t.Context()))
	})
}

// TestAdoptedLockIsNotHandedOver: its value is known outside the process.
func TestAdoptedLockIsNotHandedOver(t *testing.T) {
	for _, owner := range []string{"web-3", "web-4"} {
		simulateCase(t, owner, 3, func(t *testing.T, w *sim.World) {
			value := abandoned(t, w, "x", redlock.Owner("web-3"))
			l, _ := open(t, w, redlock.Owner(owner), longest)
			adopted := adopt(t, l, "x", value)
			got := waits(t.Context(), t, l)
			require.NoError(t, adopted.Release(t.Context()))
			next := <-got
			assert.NotEqual(t, value, next.Value())
			assert.Equal(t, owner, redlock.HolderOf(next.Value()).Owner)
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// TestReadersAreAdopted: readers with one value share a session again, whether they arrive at the
// same moment or not.
func TestReadersAreAdopted(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, c := open(t, w)
		value := take(t, holder, "x", redlock.Shared()).Value()
		assert.Equal(t, value, take(t, holder, "x", redlock.Shared()).Value())
		c.Crash()
		l, _ := open(t, w, longest)
		isOnly(t, cannotAdopt(t, l, "x", value), redlock.ErrLost) // adopts the value as a writer's lock
		isOnly(t, cannotAdopt(t, l, "x", value+"x", redlock.Shared()), redlock.ErrLost)
		r := recorded(w)
		readers := make(chan *redlock.Lock, 3)
		for range 2 {
			go func() {
				k, err := l.Adopt(t.Context(), "x", value, redlock.Shared())
				assert.NoError(t, err)
				readers <- k
			}()
		}
		all := []*redlock.Lock{<-readers, <-readers}
		time.Sleep(time.Second)
		all = append(all, adopt(t, l, "x", value, redlock.Shared()))
		assert.Len(t, r.of(sim.Submitted, protocol.OpExtendShared), 5, "one adoption is enough")
		assert.ErrorContains(t, cannotAdopt(t, l, "x", value), "holds the lock already", "as a writer's")

		other, c := open(t, w) // all servers hold its reader lock, too
		left := take(t, other, "x", redlock.Shared()).Value()
		c.Crash()
		err := cannotAdopt(t, l, "x", left, redlock.Shared())
		require.NotErrorIs(t, err, redlock.ErrLost)
		require.ErrorContains(t, err, "or adopt with another Locker")
		third, _ := open(t, w)
		require.NoError(t, adopt(t, third, "x", left, redlock.Shared()).Release(t.Context()))

		writer, _ := open(t, w)
		for _, k := range all {
			time.Sleep(2 * ttl)
			require.True(t, k.Valid())
			isHeld(t, writer, "x")
			require.NoError(t, k.Release(t.Context()))
		}
		require.NoError(t, take(t, writer, "x").Release(t.Context()))
		isOnly(t, cannotAdopt(t, l, "x", value, redlock.Shared()), redlock.ErrLost)
	})
}

func TestPermitsAreAdopted(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, c := open(t, w)
		var held []*redlock.Lock
		for range 3 {
			held = append(held, take(t, holder, "x", redlock.Permits(3)))
		}
		time.Sleep(leg)
		c.Crash()
		w.Servers()[0].Hang() // the hung server costs no time
		l, _ := open(t, w, redlock.Permits(3))
		for _, was := range held {
			assert.Equal(t, 2*rtt, took(func() {
				k := adopt(t, l, "x", was.Value())
				assert.Equal(t, was.Permit(), k.Permit())
			}))
			assert.ErrorContains(t, cannotAdopt(t, l, "x", was.Value()), "holds the lock already")
		}
		isOnly(t, cannotAdopt(t, l, "x", held[0].Value()+"x"), redlock.ErrLost)
		time.Sleep(2 * ttl)
		other, _ := open(t, w, redlock.Permits(3))
		isHeld(t, other, "x")
		onEach(w.Servers()[1:3], (*sim.Server).Hang)
		isOnly(t, cannotAdopt(t, other, "x", held[0].Value()), redlock.ErrNoQuorum)
		onEach(w.Servers()[:3], (*sim.Server).Resume)
		require.NoError(t, l.Close())
		require.NoError(t, take(t, other, "x").Release(t.Context()))
	})
}

// TestLockIsAdoptedOnce: a process adopts a lock only once. Two holders with one value would
// release each other's lock.
func TestLockIsAdoptedOnce(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		l, _ := open(t, w)
		var adopted atomic.Int32
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := l.Adopt(t.Context(), "x", value); err == nil {
					adopted.Add(1)
				} else {
					assert.ErrorContains(t, err, "use the Lock that it returned")
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, adopted.Load())
		assert.Error(t, cannotAdopt(t, l, "y", take(t, l, "y").Value()), "nor what it has acquired")
	})
}

func TestInvalidAdoptionIsRefused(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.MaxTTL(time.Minute))
		for _, call := range []func(ctx context.Context, name, value string) error{
			l.ReleaseValue,
			func(ctx context.Context, name, value string) error { _, err := l.Adopt(ctx, name, value); return err },
		} {
			var none context.Context
			assert.ErrorContains(t, call(none, "x", "v"), "the context is nil")
			assert.ErrorContains(t, call(t.Context(), "", "v"), "must not be empty")
			assert.ErrorContains(t, call(t.Context(), "redlock:epoch", "v"), "redlock's own")
			assert.ErrorContains(t, call(t.Context(), "x", ""), "the value is empty: pass the value from Lock.Value")
			assert.ErrorContains(t, call(t.Context(), "x", protocol.ReadersValue), "stands for all readers")
		}
		assert.ErrorContains(t, cannotAdopt(t, l, "x", "v", redlock.TTL(time.Hour)), "is above the MaxTTL")
		assert.ErrorContains(t, cannotAdopt(t, l, "x", "v", redlock.Permits(3), redlock.Weight(2)), "cannot be adopted as a whole: pass Weight(1)")
		require.NoError(t, l.Close())
		isOnly(t, l.ReleaseValue(t.Context(), "x", "v"), redlock.ErrClosed)
		isOnly(t, cannotAdopt(t, l, "x", "v"), redlock.ErrClosed)
	})
}

// TestHolderNoticesAReleaseByValueOfItsOwnLocker: servers send that Locker no hint.
func TestHolderNoticesAReleaseByValueOfItsOwnLocker(t *testing.T) {
	for kind, opts := range map[string][]redlock.Option{"a lock": nil, "a permit": {redlock.Permits(2)}} {
		simulateCase(t, kind, 3, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w)
			k := take(t, l, "x", opts...)
			if k.Permit() == 1 { // slot 0 has the key of the name
				k = take(t, l, "x", opts...)
			}
			time.Sleep(watchedAt)
			require.NoError(t, l.ReleaseValue(t.Context(), "x", k.Value()))
			assert.LessOrEqual(t, took(func() { <-k.Context().Done() }), leg+rtt)
			isOnly(t, context.Cause(k.Context()), redlock.ErrLost)
		})
	}
}

func TestReleaseByValueWakesWaitersOfItsProcess(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		l, _ := open(t, w, longest)
		got := waits(t.Context(), t, l)
		time.Sleep(time.Second)
		assert.LessOrEqual(t, took(func() {
			require.NoError(t, l.ReleaseValue(t.Context(), "x", value))
			require.NoError(t, (<-got).Release(t.Context()))
		}), 2*rtt+rtt)
	})
}

// TestAdoptedLockIsReleasedOnAllNodes: a node that could not be reached during the adoption still
// has the holder's key.
func TestAdoptedLockIsReleasedOnAllNodes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		unreached := w.Servers()[0]
		unreached.Crash()
		l, _ := open(t, w)
		require.NoError(t, adopt(t, l, "x", value).Release(t.Context()))
		unreached.Restart()
		assert.Equal(t, value, unreached.Keys()["x"])
		time.Sleep(time.Second)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestKnownValueReleasesNoOtherLock: a program with the value may use it when the next caller of
// the process has the lock.
func TestKnownValueReleasesNoOtherLock(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		first := take(t, l, "x")
		value := first.Value()
		got := waits(t.Context(), t, l)
		require.NoError(t, first.Release(t.Context()))
		second := <-got
		isOnly(t, other.ReleaseValue(t.Context(), "x", value), redlock.ErrLost)
		assert.NoError(t, second.Extend(t.Context()))

		got = waits(t.Context(), t, l)
		require.NoError(t, second.Release(t.Context()))
		third := <-got
		assert.Empty(t, second.Value(), "it is the value of the third by now")
		require.NoError(t, third.Release(t.Context()))
	})
}
