package redlock_test

import (
	"context"
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
	time.Sleep(leg) // all votes are there
	c.Crash()
	return k.Value()
}

func TestALockIsReleasedByItsValueFromAnotherProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "p:x", redlock.Owner("a worker that died"))
		l, _ := open(t, w, redlock.Prefix("p:"))
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		isOnly(t, l.ReleaseValue(t.Context(), "x", value[:40]), redlock.ErrLost)
		isOnly(t, l.ReleaseValue(t.Context(), "x", value+"x"), redlock.ErrLost)
		assert.Equal(t, 5, holding(w, "p:x"), "only the whole value counts")
		assert.Equal(t, rtt, took(func() { require.NoError(t, l.ReleaseValue(t.Context(), "x", value)) }))
		assert.Zero(t, holding(w, "p:x"))
		isOnly(t, l.ReleaseValue(t.Context(), "x", value), redlock.ErrLost)
		require.NoError(t, take(t, l, "x").Release(t.Context()))
	})
}

// TestAReleaseByValueOutlivesItsCaller: a node that could not be reached is released later.
func TestAReleaseByValueOutlivesItsCaller(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		l, _ := open(t, w)
		isOnly(t, l.ReleaseValue(canceled(t), "x", value), context.Canceled)
		time.Sleep(rtt)
		assert.Zero(t, holding(w, "x"), "ctx bounds the waiting, not the release")

		value = abandoned(t, w, "y")
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		isOnly(t, l.ReleaseValue(t.Context(), "y", value), redlock.ErrNoQuorum)
		for _, s := range w.Servers()[:3] {
			s.Resume()
		}
		time.Sleep(rtt)
		assert.Zero(t, holding(w, "y"))
	})
}

func TestALockIsExtendedByItsValueFromAnotherProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		l, _ := open(t, w)
		left := func() time.Duration {
			seen, err := l.Inspect(t.Context(), "x")
			require.NoError(t, err)
			_, left, _ := seen.Holder()
			return left
		}
		time.Sleep(3 * time.Second)
		assert.Equal(t, rtt, took(func() { require.NoError(t, l.ExtendValue(t.Context(), "x", value)) }))
		assert.Equal(t, ttl-rtt, left())
		require.NoError(t, l.ExtendValue(t.Context(), "x", value, redlock.TTL(time.Hour)))
		assert.Equal(t, time.Hour-rtt, left())
		require.NoError(t, l.ExtendValue(t.Context(), "x", value, redlock.TTL(time.Second)))
		assert.Equal(t, time.Hour-3*rtt, left(), "an extension takes nothing away")
		time.Sleep(time.Hour)
		assert.Zero(t, holding(w, "x"), "nothing renews it")
		isOnly(t, l.ExtendValue(t.Context(), "x", value), redlock.ErrLost)
		assert.Zero(t, holding(w, "x"), "an extension makes no key")
	})
}

// TestAnAdopterTakesNothingFromAHolder that lives: with a shorter TTL it would let another client in
// beside the holder.
func TestAnAdopterTakesNothingFromAHolder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, c := open(t, w)
		k := take(t, l, "x", redlock.Renew(false))
		set, err := l.AcquireAll(t.Context(), []string{"y", "z"}, redlock.Renew(false))
		require.NoError(t, err)
		time.Sleep(leg) // all votes are there

		adopter, _ := open(t, w, redlock.TTL(time.Second))
		require.NoError(t, adopter.ExtendValue(t.Context(), "x", k.Value()))
		require.NoError(t, adopter.ExtendValue(t.Context(), "y", set.Value()))
		time.Sleep(k.Remaining() - time.Millisecond)
		c.Pause() // before it releases what it takes for over
		for _, name := range []string{"x", "y", "z"} {
			_, err := adopter.TryAcquire(t.Context(), name)
			isOnly(t, err, redlock.ErrHeld)
		}
	})
}

// TestAHolderTakesNothingFromAnAdopter that was promised a longer TTL, however it goes on: by
// renewals, as a reader, or as one name of several that a node is given again.
func TestAHolderTakesNothingFromAnAdopter(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const long = time.Hour
		adopter, _ := open(t, w)
		adopt := func(name, value string) (end time.Time) {
			end = time.Now().Add(long - redlock.Drift(long))
			require.NoError(t, adopter.ExtendValue(t.Context(), name, value, redlock.TTL(long)))
			return end
		}
		l, c := open(t, w)
		k, becomes := take(t, l, "x"), take(t, l, "w")
		set, err := l.AcquireAll(t.Context(), []string{"y", "z"})
		require.NoError(t, err)
		ends := adopt("w", becomes.Value())
		adopt("x", k.Value())
		adopt("y", set.Value())
		w.Servers()[0].Del("z")
		require.NoError(t, becomes.Downgrade(t.Context()))
		time.Sleep(10 * ttl)
		assert.Equal(t, 5, holding(w, "z"), "the node was given it again")
		require.True(t, k.Valid() && becomes.Valid() && set.Valid())
		c.Crash()

		time.Sleep(time.Until(ends) - 3*rtt)
		for _, name := range []string{"x", "y", "w"} {
			assert.Equal(t, 5, holding(w, name), name)
			_, err := adopter.TryAcquire(t.Context(), name)
			isOnly(t, err, redlock.ErrHeld)
		}
		assert.Zero(t, holding(w, "z"))
		time.Sleep(redlock.Drift(long))
		require.NoError(t, take(t, adopter, "x").Release(t.Context()))
	})
}

func TestAnExtensionByValueNeedsAQuorum(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		value := abandoned(t, w, "x")
		l, c := open(t, w)
		w.Servers()[0].Hang()
		w.Servers()[1].Del("x")
		require.NoError(t, l.ExtendValue(t.Context(), "x", value))
		isOnly(t, l.ExtendValue(canceled(t), "x", value), context.Canceled)
		w.Servers()[2].Hang()
		isOnly(t, l.ExtendValue(t.Context(), "x", value), redlock.ErrNoQuorum)
		w.Servers()[0].Resume()
		w.Servers()[2].Resume()
		w.Servers()[3].Set("x", "another", time.Hour)
		w.Servers()[4].Del("x")
		isOnly(t, l.ExtendValue(t.Context(), "x", value), redlock.ErrLost)

		value = abandoned(t, w, "y")
		time.AfterFunc(leg/2, c.Pause)
		time.AfterFunc(2*ttl, c.Resume)
		isOnly(t, l.ExtendValue(t.Context(), "y", value), redlock.ErrNoQuorum) // it was paused for longer
	})
}

// TestAnExtensionByValueIsOnRecord: a node that forgets a lock has no vote for as long as that may
// live by its extension.
func TestAnExtensionByValueIsOnRecord(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		k := take(t, ls[0], "x", redlock.Renew(false))
		const long = 10 * time.Minute
		assert.Equal(t, 3*rtt, took(func() {
			require.NoError(t, ls[1].ExtendValue(t.Context(), "x", k.Value(), redlock.TTL(long)))
		}), "the TTL is entered before the votes that count")
		assert.Equal(t, rtt, took(func() {
			require.NoError(t, ls[1].ExtendValue(t.Context(), "x", k.Value(), redlock.TTL(long)))
		}), "the answers tell of the records")
		extended := time.Now()
		time.Sleep(time.Second)
		forget(w.Servers()[:3]...)
		third, _ := guarded(t, w)
		other, err := third.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.Greater(t, time.Since(extended), long)
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestTheHolderLearnsOfAReleaseByValue, as of a DEL.
func TestTheHolderLearnsOfAReleaseByValue(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		k := take(t, l, "x")
		time.Sleep(time.Second)
		other, _ := open(t, w)
		require.NoError(t, other.ReleaseValue(t.Context(), "x", k.Value()))
		time.Sleep(2 * rtt)
		require.ErrorIs(t, context.Cause(k.Context()), redlock.ErrLost)
	})
}

func TestWhatCannotBeAdoptedIsRefused(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.MaxTTL(time.Minute))
		for _, call := range []func(ctx context.Context, name, value string) error{
			l.ReleaseValue,
			func(ctx context.Context, name, value string) error { return l.ExtendValue(ctx, name, value) },
		} {
			var none context.Context
			assert.ErrorContains(t, call(none, "x", "v"), "the context is nil")
			assert.ErrorContains(t, call(t.Context(), "", "v"), "must not be empty")
			assert.ErrorContains(t, call(t.Context(), "redlock:epoch", "v"), "redlock's own")
			assert.ErrorContains(t, call(t.Context(), "x", ""), "the value is empty; give that of Lock.Value")
			assert.ErrorContains(t, call(t.Context(), "x", protocol.ReadersValue), "stands for all readers")
		}
		assert.ErrorContains(t, l.ExtendValue(t.Context(), "x", "v", redlock.TTL(time.Hour)), "is above the MaxTTL")
		require.NoError(t, l.Close())
		isOnly(t, l.ReleaseValue(t.Context(), "x", "v"), redlock.ErrClosed)
		isOnly(t, l.ExtendValue(t.Context(), "x", "v"), redlock.ErrClosed)
	})
}

// TestAHolderHearsOfWhatItsOwnLockerDoesByValue, of which the servers give that Locker no hint: of a
// release at once, and after an extension still of what others do to the key.
func TestAHolderHearsOfWhatItsOwnLockerDoesByValue(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *sim.World, l *redlock.Locker, value string){
		"released": func(t *testing.T, w *sim.World, l *redlock.Locker, value string) {
			require.NoError(t, l.ReleaseValue(t.Context(), "x", value))
		},
		"extended, and deleted": func(t *testing.T, w *sim.World, l *redlock.Locker, value string) {
			require.NoError(t, l.ExtendValue(t.Context(), "x", value, redlock.TTL(2*ttl)))
			time.Sleep(100 * time.Millisecond)
			onAll(w, func(s *sim.Server) { s.Del("x") })
		},
	} {
		for kind, opts := range map[string][]redlock.Option{"a lock": nil, "a permit": {redlock.Permits(2)}} {
			t.Run(kind+", "+name, func(t *testing.T) {
				simulate(t, 3, func(t *testing.T, w *sim.World) {
					l, _ := open(t, w, redlock.MaxTTL(2*ttl))
					k := take(t, l, "x", opts...)
					if k.Permit() == 1 { // slot 0 has the key of the name
						k = take(t, l, "x", opts...)
					}
					time.Sleep(watchedAt)
					change(t, w, l, k.Value())
					assert.LessOrEqual(t, took(func() { <-k.Context().Done() }), leg+rtt)
					isOnly(t, context.Cause(k.Context()), redlock.ErrLost)
				})
			})
		}
	}
}

// TestWaitersHearOfAReleaseByValueInTheirProcess.
func TestWaitersHearOfAReleaseByValueInTheirProcess(t *testing.T) {
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
