package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// TestTenThousandLocksLeaveNothing: no key, no entry in a map, no timer's
// goroutine (goleak), whichever way the locks end.
func TestTenThousandLocksLeaveNothing(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		workers, each := 100, 100
		if testing.Short() {
			each = 10
		}
		var all sync.WaitGroup
		for i := range workers {
			dice := rand.New(rand.NewPCG(uint64(i), 0))
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for j := range each {
					name := fmt.Sprint("x", i, "-", j)
					if j%10 == 0 {
						name = fmt.Sprint("shared", i%20)
					}
					lock, err := l.Acquire(context.Background(), name, redlock.Renew(dice.IntN(2) == 0))
					if !assert.NoError(t, err) {
						return
					}
					time.Sleep(time.Duration(dice.Int64N(int64(50 * time.Millisecond))))
					if dice.IntN(50) == 0 {
						assert.NoError(t, lock.Extend(context.Background()))
					}
					assert.NoError(t, lock.Release(context.Background()))
				}
			})
		}
		all.Wait()
		time.Sleep(rtt)
		scheduled, queued, inflight := l.Leftovers()
		assert.Zero(t, scheduled, "locks on the agenda")
		assert.Zero(t, queued, "names in the queue")
		assert.Zero(t, inflight, "replies that Close would wait for")
		for _, s := range w.Servers() {
			assert.Empty(t, s.Keys())
		}
		assert.Zero(t, took(func() { require.NoError(t, l.Close()) }))
	})
}

// TestFailuresLeaveNothing either.
func TestFailuresLeaveNothing(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, c := open(t, w, redlock.TTL(ttl))
		for i := range 5 {
			for _, s := range w.Servers() {
				s.Set("x", "another", time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*leg)
			_, err := l.Acquire(ctx, "x")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			_, err = l.Acquire(t.Context(), "x", redlock.Retries(i))
			assert.ErrorIs(t, err, redlock.ErrHeld)
		}
		lost := take(t, l, "y")
		c.Pause()
		time.Sleep(time.Minute)
		c.Resume()
		<-lost.Context().Done()
		time.Sleep(rtt + 1)
		scheduled, queued, inflight := l.Leftovers()
		assert.Zero(t, scheduled+queued+inflight)
		for _, s := range w.Servers() {
			assert.Empty(t, s.Keys())
		}
	})
}

// An abrupt Node grants everything until it has stopped, and then nothing.
type abrupt struct {
	name    string
	stopped atomic.Bool
}

func (a *abrupt) String() string { return a.name }
func (a *abrupt) Close() error   { return nil }

func (a *abrupt) Submit(_ *protocol.Request, slot int, to protocol.Receiver) error {
	if a.stopped.Load() {
		return errors.New("stopped")
	}
	go to.Receive(slot, protocol.Reply{Outcome: protocol.Granted})
	return nil
}

// BenchmarkManyLosses tells how late the contexts of 100,000 locks end that are lost
// together. What is allowed is redlock.Drift.
func BenchmarkManyLosses(b *testing.B) {
	const count = 100_000
	for range b.N {
		var all []*abrupt
		var nodes []protocol.Node
		for i := range 5 {
			a := &abrupt{name: fmt.Sprint("node", i)}
			all, nodes = append(all, a), append(nodes, a)
		}
		l, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.TTL(ttl))
		require.NoError(b, err)
		deadlines, ends := make([]time.Time, count), make([]time.Time, count)
		var ended sync.WaitGroup
		ended.Add(count)
		var locks []*redlock.Lock
		for i := range count {
			lock, err := l.TryAcquire(context.Background(), fmt.Sprint("x", i))
			require.NoError(b, err)
			locks = append(locks, lock)
		}
		for _, a := range all[:3] {
			a.stopped.Store(true)
		}
		time.Sleep(ttl / 100)
		for i, lock := range locks {
			deadlines[i] = lock.Until()
			context.AfterFunc(lock.Context(), func() { ends[i] = time.Now(); ended.Done() })
		}
		ended.Wait()
		var late []time.Duration
		for i := range ends {
			late = append(late, ends[i].Sub(deadlines[i]))
		}
		slices.Sort(late)
		b.ReportMetric(late[count/2].Seconds()*1000, "median-ms-late")
		b.ReportMetric(late[count-1].Seconds()*1000, "last-ms-late")
		require.NoError(b, l.Close())
	}
	b.ReportMetric(redlock.Drift(ttl).Seconds()*1000, "allowed-ms")
}
