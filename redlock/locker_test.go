package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func nodes(names ...string) (nodes []protocol.Node, all []*puppet) {
	for _, name := range names {
		p := &puppet{name: name, answer: func(protocol.Op, int) answer { return grants }}
		nodes, all = append(nodes, p), append(all, p)
	}
	return nodes, all
}

// TestNewRefusesInvalidArguments: New returns the reason and closes the nodes.
func TestNewRefusesInvalidArguments(t *testing.T) {
	t.Parallel()
	many := make([]string, 65)
	for i := range many {
		many[i] = "node" + strings.Repeat("i", i)
	}
	five := []string{"a", "b", "c", "d", "e"}
	for want, row := range map[string]struct {
		nodes []string
		opts  []redlock.LockerOption
	}{
		"no nodes":                      {nil, nil},
		"65 nodes":                      {many, nil},
		"must not vote twice":           {[]string{"a", "b", "a"}, nil},
		"nodes 1 and 3 are the same, a": {[]string{"a", "b", "a"}, nil},
		"TTL(9ms): must be between 10ms and 8760h0m0s": {five, []redlock.LockerOption{redlock.TTL(9 * time.Millisecond)}},
		"TTL(8760h0m0.001s): must be":                  {five, []redlock.LockerOption{redlock.TTL(365*24*time.Hour + time.Millisecond)}},
		"TTL(1h0m0.001s): is above an hour: after a restart of most servers no client would get any lock for 1h0m0.001s: if that is": {five, []redlock.LockerOption{redlock.TTL(time.Hour + time.Millisecond)}},
		"TTL(-1s): must be":                            {five, []redlock.LockerOption{redlock.TTL(-time.Second)}},
		"NodeTimeout(0s): must be above zero":          {five, []redlock.LockerOption{redlock.NodeTimeout(0)}},
		"NodeTimeout(10s): must be below the TTL, 10s": {five, []redlock.LockerOption{redlock.NodeTimeout(10 * time.Second)}},
		"NodeTimeout(2s): must be below the TTL, 1s":   {five, []redlock.LockerOption{redlock.NodeTimeout(2 * time.Second), redlock.TTL(time.Second)}},
		"Retries(-2): must not be negative":            {five, []redlock.LockerOption{redlock.Retries(-2)}},
		"RetryInterval(-1s): must not be negative":     {five, []redlock.LockerOption{redlock.RetryInterval(-time.Second)}},
		"MaxHold(-1ns): must be between 0 (no limit)":  {five, []redlock.LockerOption{redlock.MaxHold(-1)}},
		"Prefix: 1024 bytes leave no room for names":   {five, []redlock.LockerOption{redlock.Prefix(strings.Repeat("p", 1024))}},
		"Log(nil)":        {five, []redlock.LockerOption{redlock.Log(nil)}},
		"Observe(nil)":    {five, []redlock.LockerOption{redlock.Observe(nil)}},
		"option was zero": {five, []redlock.LockerOption{redlock.Option{}}},
		"option is nil":   {five, []redlock.LockerOption{nil}},
	} {
		given, all := nodes(row.nodes...)
		l, err := redlock.New(given, row.opts...)
		assert.True(t, l == nil, want)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "redlock: ")
		for _, p := range all {
			assert.Equal(t, 1, p.closed, "%s: node %s is closed", want, p.name)
		}
	}
	given, all := nodes("a", "b")
	_, err := redlock.New(append(given, nil))
	assert.ErrorContains(t, err, "node 3 is nil")
	assert.Equal(t, 1, all[0].closed)
}

func TestNewAcceptsOneTo64Nodes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 64; n++ {
		synctest.Test(t, func(t *testing.T) {
			_, l := puppets(t, n, func(int, protocol.Op, int) answer { return grants })
			lock := take(t, l, "x")
			synctest.Wait()
			assert.Equal(t, n, lock.Votes())
			assert.NoError(t, lock.Release(t.Context()))
		})
	}
}

// TestOptionsOfALockOverrideTheDefaults: they affect that lock alone, and are checked as strictly
// as the defaults.
func TestOptionsOfALockOverrideTheDefaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 1, func(int, protocol.Op, int) answer { return grants }, redlock.TTL(time.Second), redlock.NodeTimeout(300*time.Millisecond))
		take(t, l, "x", redlock.TTL(time.Minute), redlock.NodeTimeout(time.Second))
		take(t, l, "y")
		reqs, _ := ps[0].requests(protocol.OpAcquire)
		assert.Equal(t, time.Minute, reqs[0].TTL)
		assert.Equal(t, time.Second, reqs[0].Timeout)
		assert.Equal(t, time.Second, reqs[1].TTL)
		assert.Equal(t, 300*time.Millisecond, reqs[1].Timeout)
		for want, opt := range map[string]redlock.Option{
			"TTL(1ms)":                       redlock.TTL(time.Millisecond),
			"TTL(24h0m0s): is above an hour": redlock.TTL(24 * time.Hour),
			"NodeTimeout(300ms): must be below the TTL, 200ms": redlock.TTL(200 * time.Millisecond),
			"zero": {},
		} {
			assert.ErrorContains(t, errOf(l.TryAcquire(t.Context(), "x", opt)), want)
			assert.ErrorContains(t, errOf(l.Acquire(t.Context(), "x", opt)), want)
			assert.ErrorContains(t, l.Do(t.Context(), "x", func(context.Context) error { return nil }, opt), want)
		}
		reqs, _ = ps[0].requests(protocol.OpAcquire)
		assert.Len(t, reqs, 2)
	})
}

// TestDefaultsCanBeRestored: the Locker has other defaults, and one lock has the package's
// defaults.
func TestDefaultsCanBeRestored(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), longest, redlock.MaxHold(time.Second), redlock.Retries(0), redlock.RetryInterval(time.Minute))
		take(t, l, "x")
		start := time.Now()
		lock := waited(t, l, "x", redlock.Retries(redlock.Forever), redlock.RetryInterval(0), redlock.MaxHold(0))
		assert.LessOrEqual(t, time.Since(start), time.Second+standsBack)
		assert.Equal(t, validity, lock.Remaining())
	})
}

// TestNames: a name may contain any bytes, up to 1024 with the prefix, but must not be empty.
func TestNames(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Prefix("lock:"))
		for _, name := range []string{"a", " ", "\x00\r\n\xff", strings.Repeat("n", 1019)} {
			lock := take(t, l, name)
			assert.Equal(t, name, lock.Name())
			assert.Contains(t, w.Servers()[0].Keys(), "lock:"+name)
			assert.NoError(t, lock.Release(t.Context()))
		}
		for name, want := range map[string]string{
			"":                        "must not be empty",
			strings.Repeat("n", 1020): "1025 bytes with its prefix, at most 1024",
		} {
			assert.ErrorContains(t, errOf(l.Acquire(t.Context(), name)), want)
			assert.ErrorContains(t, errOf(l.TryAcquire(t.Context(), name)), want)
			_, err := l.Inspect(t.Context(), name)
			assert.ErrorContains(t, err, want)
		}
	})
}

// TestCloseReleasesHeldLocks: Close notifies the holders and waits for the releases.
func TestCloseReleasesHeldLocks(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		x, y := take(t, l, "x"), take(t, l, "y", redlock.Renew(false))
		assert.Equal(t, rtt, took(func() { assert.NoError(t, l.Close()) }), "until all nodes have confirmed")
		assert.Equal(t, redlock.ErrClosed, context.Cause(x.Context()))
		assert.Equal(t, redlock.ErrClosed, context.Cause(y.Context()))
		assert.False(t, x.Valid())
		onAll(w, func(s *sim.Server) { assert.Empty(t, s.Keys()) })
		assert.Zero(t, took(func() { assert.NoError(t, l.Close()) }), "twice does no harm")
		isOnly(t, errOf(l.TryAcquire(t.Context(), "x")), redlock.ErrClosed)
	})
}

// TestCloseWaitsForCurrentReleases: a program that calls Close and exits right after Release leaves
// no key. Close waits for at most a node timeout. Two concurrent calls both return after all
// releases.
func TestCloseWaitsForCurrentReleases(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Hour, Travel: slowNode(4, 30*time.Millisecond)})
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(time.Second)
		require.NoError(t, lock.Release(t.Context())) // four nodes confirm the release
		second := make(chan time.Duration)
		const over = 60*time.Millisecond - rtt
		time.AfterFunc(leg, func() { second <- took(func() { l.Close() }) })
		assert.Equal(t, over, took(func() { l.Close() }))
		assert.Equal(t, over-leg, <-second)
		assert.Zero(t, holding(w, "x"))
	})
	simulateCase(t, "for no longer than a node timeout", 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.NodeTimeout(150*time.Millisecond))
		lock := take(t, l, "x")
		w.Servers()[4].Hang()
		require.NoError(t, lock.Release(t.Context()))
		assert.Equal(t, 150*time.Millisecond, took(func() { l.Close() }))
	})
}

// TestCloseEndsCurrentAcquisitions: they are in an attempt, a pause or a queue. Their grants are
// released before Close returns.
func TestCloseEndsCurrentAcquisitions(t *testing.T) {
	for name, at := range map[string]time.Duration{"SETs under way": leg / 2, "replies under way": leg + leg/2} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w)
			errs := make(chan error, 3)
			for range cap(errs) {
				go func() {
					_, err := l.Acquire(t.Context(), "x")
					errs <- err
				}()
			}
			time.Sleep(at)
			l.Close()
			assert.Zero(t, holding(w, "x"))
			for range cap(errs) {
				isOnly(t, <-errs, redlock.ErrClosed)
			}
			assert.Zero(t, l.Leftovers())
		})
	}
}

func TestCloseReportsTheNodesErrors(t *testing.T) {
	t.Parallel()
	given, _ := nodes("a", "b")
	broken := errors.New("cannot close")
	l, err := redlock.New(append(given, stubborn{&puppet{name: "c"}, broken}))
	require.NoError(t, err)
	assert.ErrorIs(t, l.Close(), broken)
	assert.ErrorIs(t, l.Close(), broken)
}

type stubborn struct {
	protocol.Node
	err error
}

func (s stubborn) Close() error { return s.err }

// TestNodeBelongsToOneLocker: New refuses a second Locker over the same nodes, and leaves them to
// the first Locker. The other nodes of the second are closed.
func TestNodeBelongsToOneLocker(t *testing.T) {
	t.Parallel()
	given, all := nodes("a", "b", "c", "d")
	l, err := redlock.New(given[:3], redlock.MemoryGuard(false), redlock.TTL(time.Minute), redlock.NodeTimeout(20*time.Second))
	require.NoError(t, err)
	for _, some := range [][]protocol.Node{given[:3], {given[3], given[1]}} {
		_, err = redlock.New(some)
		assert.ErrorContains(t, err, "belongs to another Locker")
	}
	assert.ErrorContains(t, err, "node 2, b,")
	for i, n := range all {
		assert.Equal(t, i/3, n.closed, n.name)
	}
	take(t, l, "x")
	require.NoError(t, l.Close())
	again, err := redlock.New(given[:3])
	require.NoError(t, err, "after the Close they are nobody's")
	require.NoError(t, again.Close())

	_, err = redlock.New(given[:3], redlock.TTL(0))
	require.Error(t, err)
	last, err := redlock.New(given[:3])
	require.NoError(t, err, "nor after a New that has failed")
	require.NoError(t, last.Close())
}

// TestNilArgumentsAreNamed: without a check, a nil dereference would occur in a place that does not
// show the mistake.
func TestNilArgumentsAreNamed(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		var none context.Context
		ran := func(context.Context) error { t.Error("it ran"); return nil }
		lock := take(t, l, "x")
		_, acquire := l.Acquire(none, "y")
		_, try := l.TryAcquire(none, "y")
		_, inspect := l.Inspect(none, "y")
		for call, err := range map[string]error{
			"acquire": acquire, "tryacquire": try, "do": l.Do(none, "y", ran), "inspect": inspect, "extend": lock.Extend(none),
		} {
			assert.ErrorContains(t, err, "the context is nil", call)
		}
		assert.ErrorContains(t, l.Do(t.Context(), "y", nil), "the function is nil")
		assert.Zero(t, holding(w, "y"))

		assert.True(t, lock.Valid())
		assert.ErrorContains(t, lock.Release(none), "the context is nil")
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrReleased, "a lock that nobody would release again")
		time.Sleep(rtt)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestDoHoldsTheLockDuringTheCall: Do returns fn's error and releases the lock, even if fn panics
// or the caller's context has ended.
func TestDoHoldsTheLockDuringTheCall(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		isFree := func() { t.Helper(); time.Sleep(leg); assert.Zero(t, holding(w, "x")) }
		for _, want := range []error{nil, errors.New("broken")} {
			assert.Equal(t, want, l.Do(ctx, "x", func(ctx context.Context) error {
				assert.Equal(t, 5, holding(w, "x"))
				assert.Equal(t, "value", ctx.Value(key{}))
				time.Sleep(time.Hour)
				assert.NoError(t, ctx.Err())
				return want
			}))
			isFree()
		}
		assert.PanicsWithValue(t, "broken", func() {
			l.Do(t.Context(), "x", func(context.Context) error { panic("broken") })
		})
		isFree()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, l.Do(ctx, "x", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		isFree()
	})
}

// TestDoReportsALoss: fn's context ends, and the error reports that the work may have run
// unprotected, in addition to fn's own error. The same applies to a Close, and to a loss noticed
// only at the release.
func TestDoReportsALoss(t *testing.T) {
	broken := errors.New("broken")
	waits := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, c := range map[string]struct {
		fn    func(ctx context.Context, w *sim.World, l *redlock.Locker) error
		kind  error
		after time.Duration // time until the context ends
	}{
		"fn succeeds": {func(ctx context.Context, _ *sim.World, _ *redlock.Locker) error { return waits(ctx) }, redlock.ErrLost, validity},
		"fn fails":    {func(ctx context.Context, _ *sim.World, _ *redlock.Locker) error { waits(ctx); return broken }, redlock.ErrLost, validity},
		"closed":      {func(ctx context.Context, _ *sim.World, l *redlock.Locker) error { l.Close(); return waits(ctx) }, redlock.ErrClosed, rtt},
		"another has it": {func(_ context.Context, w *sim.World, _ *redlock.Locker) error {
			onAll(w, func(s *sim.Server) { s.Set("x", "another", time.Hour) })
			return nil
		}, redlock.ErrLost, 0},
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
			err := l.Do(t.Context(), "x", func(ctx context.Context) (err error) {
				assert.Equal(t, c.after, took(func() { err = c.fn(ctx, w, l) }))
				if c.after > 0 {
					assert.ErrorIs(t, context.Cause(ctx), c.kind)
				}
				return err
			})
			assert.ErrorIs(t, err, c.kind)
			assert.Equal(t, name == "fn fails", errors.Is(err, broken))
			if name == "another has it" {
				time.Sleep(leg)
				assert.Equal(t, 5, holding(w, "x"))
			}
		})
	}
}

// TestDoWithoutALockDoesNotRunFn.
func TestDoWithoutALockDoesNotRunFn(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		take(t, l, "x")
		err := l.Do(t.Context(), "x", func(context.Context) error {
			t.Error("fn ran")
			return nil
		}, redlock.Retries(1))
		isOnly(t, err, redlock.ErrHeld)
	})
}

func TestWaitDoesNotLimitTheWorkOfDo(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		require.NoError(t, l.Do(t.Context(), "x", func(ctx context.Context) error {
			time.Sleep(time.Hour)
			return ctx.Err()
		}, redlock.Wait(time.Second)))
	})
}

// TestDoAcceptsAnUnconfirmedRelease: the work was protected, and the keys expire.
func TestDoAcceptsAnUnconfirmedRelease(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		assert.NoError(t, l.Do(t.Context(), "x", func(context.Context) error {
			onAll(w, (*sim.Server).Hang)
			return nil
		}))
	})
}

// A forgetful node fails over.
type forgetful struct{ protocol.Node }

func (forgetful) Forgets() bool { return true }

func TestForgetfulNodeNeedsTheGuard(t *testing.T) {
	t.Parallel()
	given, all := nodes("a", "b", "c")
	given[1] = &forgetful{given[1]}
	_, err := redlock.New(given, redlock.MemoryGuard(false))
	assert.ErrorContains(t, err, "node 2, b, fails over")
	assert.ErrorContains(t, err, "needs the memory guard")
	for _, n := range all {
		assert.Equal(t, 1, n.closed, n.name)
	}
	given, _ = nodes("a", "b", "c")
	_, err = redlock.NewGroups([]redlock.Group{{Name: "g", Nodes: []protocol.Node{&forgetful{given[0]}}}}, redlock.MemoryGuard(false))
	assert.ErrorContains(t, err, "fails over")
	given, _ = nodes("a", "b", "c")
	given[1] = &forgetful{given[1]}
	l, err := redlock.New(given)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
