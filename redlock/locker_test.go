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

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func nodes(names ...string) (nodes []redlock.Node, all []*puppet) {
	for _, name := range names {
		p := &puppet{name: name, answer: func(redlock.Op, int) answer { return grants }}
		nodes, all = append(nodes, p), append(all, p)
	}
	return nodes, all
}

// TestNewRefusesWhatCannotWork, says why, and gives back the nodes.
func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	many := make([]string, 65)
	for i := range many {
		many[i] = "node" + strings.Repeat("i", i)
	}
	five := []string{"a", "b", "c", "d", "e"}
	for want, row := range map[string]struct {
		nodes []string
		opts  []redlock.Option
	}{
		"no nodes":                      {nil, nil},
		"65 nodes":                      {many, nil},
		"must not vote twice":           {[]string{"a", "b", "a"}, nil},
		"nodes 0 and 2 are the same, a": {[]string{"a", "b", "a"}, nil},
		"TTL(9ms): must be between 10ms and 8760h0m0s": {five, []redlock.Option{redlock.TTL(9 * time.Millisecond)}},
		"TTL(8760h0m0.001s): must be":                  {five, []redlock.Option{redlock.TTL(365*24*time.Hour + time.Millisecond)}},
		"TTL(-1s): must be":                            {five, []redlock.Option{redlock.TTL(-time.Second)}},
		"NodeTimeout(0s): must be above zero":          {five, []redlock.Option{redlock.NodeTimeout(0)}},
		"NodeTimeout(10s): must be below the TTL, 10s": {five, []redlock.Option{redlock.NodeTimeout(10 * time.Second)}},
		"NodeTimeout(2s): must be below the TTL, 1s":   {five, []redlock.Option{redlock.NodeTimeout(2 * time.Second), redlock.TTL(time.Second)}},
		"Retries(-2): must not be negative":            {five, []redlock.Option{redlock.Retries(-2)}},
		"RetryInterval(-1s): must not be negative":     {five, []redlock.Option{redlock.RetryInterval(-time.Second)}},
		"MaxHold(-1ns): must be between 0 (no limit)":  {five, []redlock.Option{redlock.MaxHold(-1)}},
		"Prefix: 1024 bytes leave no room for names":   {five, []redlock.Option{redlock.Prefix(strings.Repeat("p", 1024))}},
		"Clock(nil)":         {five, []redlock.Option{redlock.Clock(nil)}},
		"Log(nil)":           {five, []redlock.Option{redlock.Log(nil)}},
		"Observe(nil)":       {five, []redlock.Option{redlock.Observe(nil)}},
		"Jitter(nil)":        {five, []redlock.Option{redlock.Jitter(nil)}},
		"an Option was zero": {five, []redlock.Option{{}}},
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
	assert.ErrorContains(t, err, "node 2 is nil")
	assert.Equal(t, 1, all[0].closed)
}

func TestNewTakesFromOneTo64Nodes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 64; n++ {
		synctest.Test(t, func(t *testing.T) {
			_, l := puppets(t, n, func(int, redlock.Op, int) answer { return grants })
			lock := take(t, l, "x")
			synctest.Wait()
			assert.Equal(t, n, lock.Votes())
			assert.NoError(t, lock.Release(t.Context()))
		})
	}
}

// TestOptionsOfALockOverrideThoseOfNew for that lock alone, and are checked as
// strictly.
func TestOptionsOfALockOverrideThoseOfNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 1, func(int, redlock.Op, int) answer { return grants }, redlock.TTL(time.Second), redlock.NodeTimeout(300*time.Millisecond))
		take(t, l, "x", redlock.TTL(time.Minute), redlock.NodeTimeout(time.Second))
		take(t, l, "y")
		reqs, _ := ps[0].requests(redlock.OpAcquire)
		assert.Equal(t, time.Minute, reqs[0].TTL)
		assert.Equal(t, time.Second, reqs[0].Timeout)
		assert.Equal(t, time.Second, reqs[1].TTL)
		assert.Equal(t, 300*time.Millisecond, reqs[1].Timeout)
		for want, opt := range map[string]redlock.Option{
			"TTL(1ms)": redlock.TTL(time.Millisecond),
			"NodeTimeout(300ms): must be below the TTL, 200ms": redlock.TTL(200 * time.Millisecond),
			"options of New": redlock.Prefix("p"),
			"zero":           {},
		} {
			_, err := l.TryAcquire(t.Context(), "x", opt)
			assert.ErrorContains(t, err, want)
			_, err = l.Acquire(t.Context(), "x", opt)
			assert.ErrorContains(t, err, want)
			assert.ErrorContains(t, l.Do(t.Context(), "x", nil, opt), want)
		}
		reqs, _ = ps[0].requests(redlock.OpAcquire)
		assert.Len(t, reqs, 2)
	})
}

// TestDefaultsCanBeSetAgain for one lock of a Locker that has others.
func TestDefaultsCanBeSetAgain(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), longest, redlock.MaxHold(time.Second), redlock.Retries(0), redlock.RetryInterval(time.Minute))
		take(t, l, "x")
		start := time.Now()
		lock, err := l.Acquire(t.Context(), "x", redlock.Retries(redlock.Forever), redlock.RetryInterval(0), redlock.MaxHold(0))
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(start), time.Second+standsBack)
		assert.Equal(t, validity-rtt, lock.Remaining(), "two round trips: this process stood back")
	})
}

// TestNames: any bytes will do, up to 1024 with the prefix, and none at all
// will not.
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
			_, err := l.Acquire(t.Context(), name)
			assert.ErrorContains(t, err, want)
			_, err = l.TryAcquire(t.Context(), name)
			assert.ErrorContains(t, err, want)
			_, err = l.Inspect(t.Context(), name)
			assert.ErrorContains(t, err, want)
		}
	})
}

// TestCloseReleasesWhatIsHeld, says so to the holders, and waits for it.
func TestCloseReleasesWhatIsHeld(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		x, y := take(t, l, "x"), take(t, l, "y", redlock.Renew(false))
		assert.Equal(t, rtt, took(func() { assert.NoError(t, l.Close()) }), "until all nodes have confirmed")
		assert.Equal(t, redlock.ErrClosed, context.Cause(x.Context()))
		assert.Equal(t, redlock.ErrClosed, context.Cause(y.Context()))
		assert.False(t, x.Valid())
		for _, s := range w.Servers() {
			assert.Empty(t, s.Keys())
		}
		assert.Zero(t, took(func() { assert.NoError(t, l.Close()) }), "twice does no harm")
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrClosed)
	})
}

// TestCloseWaitsForReleasesUnderWay, so that a program that ends right after
// Release leaves no key; but for no longer than a node timeout.
func TestCloseWaitsForReleasesUnderWay(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Hour, Travel: slowNode(4, 30*time.Millisecond)})
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(time.Second)
		require.NoError(t, lock.Release(t.Context())) // by four nodes
		assert.Equal(t, 60*time.Millisecond-rtt, took(func() { l.Close() }))
		assert.Zero(t, holding(w, "x"))
	})
	t.Run("for no longer than a node timeout", func(t *testing.T) {
		simulate(t, 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, redlock.NodeTimeout(150*time.Millisecond))
			lock := take(t, l, "x")
			w.Servers()[4].Hang()
			require.NoError(t, lock.Release(t.Context()))
			assert.Equal(t, 150*time.Millisecond, took(func() { l.Close() }))
		})
	})
}

// TestCloseEndsAcquisitionsUnderWay: those that vote, wait and queue. What the
// votes took is given back before Close returns.
func TestCloseEndsAcquisitionsUnderWay(t *testing.T) {
	for name, at := range map[string]time.Duration{"SETs under way": leg / 2, "replies under way": leg + leg/2} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
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
				scheduled, queued, inflight := l.Leftovers()
				assert.Zero(t, scheduled+queued+inflight)
			})
		})
	}
}

// TestCloseReportsTheNodesErrors.
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
	redlock.Node
	err error
}

func (s stubborn) Close() error { return s.err }

// TestCloseTwiceAtOnce: both calls return when all is over.
func TestCloseTwiceAtOnce(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		take(t, l, "x")
		start := time.Now()
		second := make(chan time.Duration)
		time.AfterFunc(leg, func() {
			l.Close()
			second <- time.Since(start)
		})
		l.Close()
		assert.Equal(t, rtt, <-second)
	})
}
