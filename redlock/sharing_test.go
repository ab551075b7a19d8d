package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func read(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	return take(t, l, name, append(opts, redlock.Shared())...)
}

// writerWaits returns a channel that gets the lock of a writer that waits for name from now on,
// for a minute at most.
func writerWaits(t *testing.T, l *redlock.Locker, name string) <-chan *redlock.Lock {
	got := make(chan *redlock.Lock, 1)
	go func() {
		defer close(got)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if k, err := l.Acquire(ctx, name); assert.NoError(t, err) {
			got <- k
		}
	}()
	synctest.Wait()
	return got
}

func TestReadersAreThereTogetherAndNoWriterBeside(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		r1, r2 := read(t, a, "x"), read(t, b, "x")
		assert.Equal(t, 5, r1.Votes())
		_, err := b.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		require.NoError(t, r1.Release(t.Context()))
		_, err = a.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		time.Sleep(10 * ttl) // they are renewed
		assert.True(t, r2.Valid())
		require.NoError(t, r2.Release(t.Context()))
		k := take(t, a, "x")
		_, err = b.TryAcquire(t.Context(), "x", redlock.Shared())
		isOnly(t, err, redlock.ErrHeld)
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(time.Second)
		for _, s := range w.Servers() {
			assert.Empty(t, s.Keys())
		}
	})
}

// TestAReaderThatDiesHoldsUpAWriterForItsOwnTTL, whatever others have.
func TestAReaderThatDiesHoldsUpAWriterForItsOwnTTL(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		dead, c := open(t, w)
		alive, _ := open(t, w)
		writer, _ := open(t, w)
		read(t, dead, "x")
		other := read(t, alive, "x", redlock.TTL(6*ttl))
		c.Crash()
		got := writerWaits(t, writer, "x")
		time.Sleep(ttl / 2)
		require.NoError(t, other.Release(t.Context()))
		waited := took(func() { require.NoError(t, (<-got).Release(t.Context())) })
		assert.InDelta(t, ttl/2, waited, float64(250*time.Millisecond))
	})
}

// TestAWaitingWriterComesBeforeReadersThatComeLater: there is always a reader, of this process
// or another.
func TestAWaitingWriterComesBeforeReadersThatComeLater(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ctx, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for range 2 {
			l, _ := open(t, w)
			for i := range 5 {
				readers.Go(func() {
					time.Sleep(time.Duration(i) * 20 * time.Millisecond)
					for ctx.Err() == nil {
						k, err := l.Acquire(ctx, "x", redlock.Shared())
						if err != nil {
							return
						}
						time.Sleep(100 * time.Millisecond)
						k.Release(t.Context())
					}
				})
			}
		}
		writer, _ := open(t, w)
		time.Sleep(time.Second)
		for range 5 {
			got := writerWaits(t, writer, "x")
			waited := took(func() {
				k := <-got
				if k == nil {
					stop()
					readers.Wait()
					t.FailNow()
				}
				time.Sleep(50 * time.Millisecond)
				require.NoError(t, k.Release(t.Context()))
			})
			assert.Less(t, waited, 700*time.Millisecond)
			time.Sleep(300 * time.Millisecond)
		}
		stop()
		readers.Wait()
	})
}

// A visited node has a reader that comes right before each request of a writer, and leaves right
// behind it.
type visited struct{ protocol.Node }

func (v visited) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if req.Op != protocol.OpAcquire {
		return v.Node.Submit(req, slot, to)
	}
	visit := protocol.Request{Op: protocol.OpShare, Key: req.Key, Value: "a reader", TTL: ttl, Timeout: ttl,
		Shared: &protocol.Shared{Readers: "redlock:readers:{" + req.Key + "}", Intent: "redlock:intent:{" + req.Key + "}"}}
	leave := visit
	leave.Op = protocol.OpReleaseShared
	_ = v.Node.Submit(&visit, 0, unheard{})
	defer v.Node.Submit(&leave, 0, unheard{})
	return v.Node.Submit(req, slot, to)
}

// A hintingVisited node hints as well: the reader's leaving has the writer try at once, again and
// again. It keeps no queue.
type hintingVisited struct{ visited }

func (v hintingVisited) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if req.Op == protocol.OpQueue {
		return pool.ErrPermission
	}
	return v.visited.Submit(req, slot, to)
}

func (v hintingVisited) Watch(key string, hint func(key string)) (stop func()) {
	return v.Node.(protocol.Watchable).Watch(key, hint)
}

type unheard struct{}

func (unheard) Receive(int, protocol.Reply) {}

// TestAWriterDoesNotStarveBehindReadersThatItNeverSees, because they leave between its request and
// its undo, on every node, every time.
func TestAWriterDoesNotStarveBehindReadersThatItNeverSees(t *testing.T) {
	for name, visit := range map[string]func(protocol.Node) protocol.Node{
		"without hints":            func(n protocol.Node) protocol.Node { return visited{n} },
		"with hints, and no queue": func(n protocol.Node) protocol.Node { return hintingVisited{visited{n}} },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				c := w.NewClient(1)
				nodes := c.Nodes()
				for i, n := range nodes {
					nodes[i] = visit(n)
				}
				l, err := redlock.New(nodes, redlock.TTL(ttl), redlock.MemoryGuard(false), timetest.Clock(c.Clock()))
				require.NoError(t, err)
				defer l.Close()
				began := time.Now()
				got := writerWaits(t, l, "x")
				k := <-got
				require.NotNil(t, k, "it starves")
				assert.Less(t, time.Since(began), 2*time.Second)
				require.NoError(t, k.Release(t.Context()))
				time.Sleep(rtt)
				for _, s := range w.Servers() {
					assert.Empty(t, s.Keys(), "its intent is taken back")
				}
			})
		})
	}
}

// A crossed node has another writer there at each of so many acquisitions. It leaves before the undo
// comes, but for each fourth time.
type crossed struct {
	protocol.Node
	left *int
}

func (c crossed) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	if req.Op != protocol.OpAcquire || *c.left == 0 {
		return c.Node.Submit(req, slot, to)
	}
	*c.left--
	visit := protocol.Request{Op: protocol.OpAcquire, Key: req.Key, Value: "a writer", TTL: ttl, Timeout: ttl}
	leave := visit
	leave.Op = protocol.OpRelease
	_ = c.Node.Submit(&visit, 0, unheard{})
	err := c.Node.Submit(req, slot, to)
	if *c.left%4 != 0 {
		_ = c.Node.Submit(&leave, 0, unheard{})
	} else {
		time.AfterFunc(10*rtt, func() { _ = c.Node.Submit(&leave, 0, unheard{}) })
	}
	return err
}

// intenders returns the intents that nodes have got, by their values.
func intenders(w *sim.World) map[string]bool {
	all := map[string]bool{}
	w.Watch(func(s sim.Step) {
		if s.Stage == sim.Run && s.Op == protocol.OpIntend {
			all[s.Value] = true
		}
	})
	return all
}

// TestAWriterThatSeesAnotherNowAndThenTakesNoneForReaders, which would cost the nodes requests for
// nothing.
func TestAWriterThatSeesAnotherNowAndThenTakesNoneForReaders(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const tries = 40
		intents := intenders(w)
		c := w.NewClient(1)
		nodes, left := c.Nodes(), make([]int, 5)
		for i, n := range nodes {
			left[i] = tries
			nodes[i] = crossed{n, &left[i]}
		}
		l, err := redlock.New(nodes, redlock.TTL(ttl), redlock.MemoryGuard(false), timetest.Clock(c.Clock()))
		require.NoError(t, err)
		defer l.Close()
		k, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		slices.Sort(left)
		assert.Equal(t, make([]int, 3), left[:3], "all tries but the last met another")
		assert.Empty(t, intents)
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestAReaderThatAWriterKeepsOutWaits, and does not try to join the readers of its process all the time.
func TestAReaderThatAWriterKeepsOutWaits(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		reader := read(t, l, "x")
		writer := writerWaits(t, other, "x")
		time.Sleep(time.Second)
		r := recorded(w)
		late := make(chan *redlock.Lock, 1)
		go func() {
			k, err := l.Acquire(t.Context(), "x", redlock.Shared())
			assert.NoError(t, err)
			late <- k
		}()
		time.Sleep(time.Second)
		assert.LessOrEqual(t, len(r.of(sim.Submitted, protocol.OpShare)), 5*20)
		require.NoError(t, reader.Release(t.Context()))
		require.NoError(t, (<-writer).Release(t.Context()))
		require.NoError(t, (<-late).Release(t.Context()))
	})
}

// TestWritersAloneDoNotTakeEachOtherForReaders, but for one of many thousands that has met only
// writers which had left, several times in a row. Which of them come in the same moment is the
// scheduler's choice.
func TestWritersAloneDoNotTakeEachOtherForReaders(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		intents := intenders(w)
		var all sync.WaitGroup
		for i := range 6 {
			l, _ := open(t, w)
			hold, opts := 50*time.Millisecond, []redlock.Option(nil)
			if i%2 == 1 { // in no queue, and often gone before a refusal is looked into
				hold, opts = 2*rtt, []redlock.Option{redlock.RetryInterval(time.Duration(20+3*i) * time.Millisecond)}
			}
			all.Go(func() {
				for range 20 {
					k, err := l.Acquire(t.Context(), "x", opts...)
					if assert.NoError(t, err) {
						time.Sleep(hold)
						assert.NoError(t, k.Release(t.Context()))
					}
				}
			})
		}
		all.Wait()
		assert.LessOrEqual(t, len(intents), 2)
	})
}

func TestAWriterThatDiesWhileItWaitsHoldsUpReadersForItsIntentOnly(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		dead, c := open(t, w)
		r := read(t, a, "x")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go dead.Acquire(ctx, "x")
		time.Sleep(time.Second)
		_, err := b.TryAcquire(t.Context(), "x", redlock.Shared())
		isOnly(t, err, redlock.ErrHeld)
		c.Crash()
		var k *redlock.Lock
		assert.LessOrEqual(t, took(func() {
			k, err = b.Acquire(t.Context(), "x", redlock.Shared())
			require.NoError(t, err)
		}), time.Second+2*nodeTimeout+250*time.Millisecond)
		assert.True(t, r.Valid())
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestAWriterThatGivesUpLetsReadersIn at once.
func TestAWriterThatGivesUpLetsReadersIn(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		read(t, a, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Acquire(ctx, "x")
		isOnly(t, err, context.DeadlineExceeded)
		time.Sleep(leg)
		read(t, b, "x")
	})
}

// TestAWriterWhoseLockerClosesLetsReadersIn: Close returns only when its intent is gone, because the
// process may end then.
func TestAWriterWhoseLockerClosesLetsReadersIn(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		read(t, a, "x")
		ended := make(chan error, 1)
		go func() {
			_, err := b.Acquire(context.Background(), "x")
			ended <- err
		}()
		time.Sleep(time.Second)
		for _, s := range w.Servers() {
			assert.Contains(t, s.Keys(), "redlock:intent:{x}")
		}
		require.NoError(t, b.Close())
		for _, s := range w.Servers() {
			assert.NotContains(t, s.Keys(), "redlock:intent:{x}")
		}
		isOnly(t, <-ended, redlock.ErrClosed)
	})
}

// TestReadersOfAProcessShareASession: ten thousand cost the servers one entry, and one
// request each at a time.
func TestReadersOfAProcessShareASession(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		const n = 10_000
		locks := make([]*redlock.Lock, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				var err error
				locks[i], err = l.Acquire(t.Context(), "x", redlock.Shared())
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Len(t, r.of(sim.Submitted, protocol.OpShare), 5)
		r.forget()
		time.Sleep(ttl / 2)
		assert.Len(t, r.of(sim.Submitted, protocol.OpExtendShared), 5)
		for i, k := range locks {
			assert.True(t, k.Valid())
			assert.Equal(t, locks[0].Value(), k.Value())
			if i > 0 {
				ctx := k.Context()
				require.NoError(t, k.Release(t.Context()))
				assert.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
				assert.ErrorIs(t, k.Release(t.Context()), redlock.ErrReleased)
				assert.False(t, k.Valid())
			}
		}
		assert.Empty(t, r.of(sim.Submitted, protocol.OpReleaseShared))
		assert.True(t, locks[0].Valid())
		require.NoError(t, locks[0].Release(t.Context()))
		assert.Len(t, r.of(sim.Submitted, protocol.OpReleaseShared), 5)
		time.Sleep(time.Second)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestAReaderOfTheProcessAsksTheNodesNowAndThen, with the value that they know, so that it
// learns of writers that wait.
func TestAReaderOfTheProcessAsksTheNodesNowAndThen(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		first := read(t, l, "x")
		time.Sleep(time.Second)
		second := read(t, l, "x")
		assert.Equal(t, first.Value(), second.Value())
		got := writerWaits(t, other, "x")
		time.Sleep(100 * time.Millisecond)
		_, err := l.TryAcquire(t.Context(), "x", redlock.Shared())
		isOnly(t, err, redlock.ErrHeld)
		assert.True(t, first.Valid(), "a refused reader takes nothing from the others")
		assert.Equal(t, 5, first.Votes())
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, second.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

// TestARefusedReaderIsReleasedWhereItIs: that no other reader may join does not mean that the
// node let this one go.
func TestARefusedReaderIsReleasedWhereItIs(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		first := read(t, l, "x")
		time.Sleep(time.Second)
		got := writerWaits(t, other, "x")
		time.Sleep(100 * time.Millisecond)
		_, err := l.TryAcquire(t.Context(), "x", redlock.Shared())
		isOnly(t, err, redlock.ErrHeld)
		w.SetNet(lose(func(l sim.Leg) bool { return l.Node == 0 && l.Op == protocol.OpReleaseShared }))
		require.NoError(t, first.Release(t.Context()))
		k := <-got
		w.SetNet(sim.Fixed(leg))
		time.Sleep(ttl / 2)
		assert.NotEqual(t, protocol.ReadersValue, w.Servers()[0].Keys()["x"])
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestALossEndsAllWhoShare.
func TestALossEndsAllWhoShare(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, w *sim.World, l *redlock.Locker, c *sim.Client) error{
		"loss": func(t *testing.T, w *sim.World, l *redlock.Locker, c *sim.Client) error {
			for _, s := range w.Servers()[:3] {
				s.Flush()
				s.Set("x", "another", time.Hour)
			}
			return redlock.ErrLost
		},
		"deadline": func(t *testing.T, w *sim.World, l *redlock.Locker, c *sim.Client) error {
			w.SetNet(lose(func(sim.Leg) bool { return true }))
			return redlock.ErrLost
		},
		"Close": func(t *testing.T, w *sim.World, l *redlock.Locker, c *sim.Client) error {
			l.Close()
			return redlock.ErrClosed
		},
	} {
		t.Run(how, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, c := open(t, w)
				var locks []*redlock.Lock
				for range 3 {
					locks = append(locks, read(t, l, "x"))
				}
				time.Sleep(time.Second)
				want := end(t, w, l, c)
				time.Sleep(ttl)
				for _, k := range locks {
					assert.ErrorIs(t, context.Cause(k.Context()), want)
					assert.False(t, k.Valid())
					require.ErrorIs(t, k.Release(t.Context()), want)
				}
			})
		})
	}
}

// TestAForgetfulNodeIsGivenAReaderAgain, also beside other readers and a writer that waits.
func TestAForgetfulNodeIsGivenAReaderAgain(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		writer, _ := open(t, w)
		r1, r2 := read(t, a, "x"), read(t, b, "x")
		got := writerWaits(t, writer, "x")
		for _, s := range w.Servers()[:2] {
			s.Flush()
		}
		time.Sleep(ttl)
		assert.Equal(t, 5, r1.Votes())
		assert.Equal(t, 5, r2.Votes())
		assert.Equal(t, 5, holding(w, "x"))
		require.NoError(t, r1.Release(t.Context()))
		require.NoError(t, r2.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

func TestAWriterBecomesAReader(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		k := take(t, a, "x", redlock.Fenced())
		token := k.Fence()
		time.Sleep(time.Second) // it is watched by now
		w.Servers()[4].Hang()
		require.NoError(t, k.Downgrade(t.Context()))
		w.Servers()[4].Resume()
		other := read(t, b, "x")
		_, err := b.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		time.Sleep(3 * ttl)
		assert.True(t, k.Valid())
		assert.True(t, other.Valid())
		assert.Equal(t, 5, k.Votes())
		assert.Equal(t, token, k.Fence())
		require.NoError(t, k.Downgrade(t.Context()), "again it is an extension")
		require.NoError(t, other.Release(t.Context()))
		require.NoError(t, k.Release(t.Context()))
		require.ErrorIs(t, k.Downgrade(t.Context()), redlock.ErrReleased)
		var noContext context.Context
		require.ErrorContains(t, k.Downgrade(noContext), "context is nil")
		require.NoError(t, take(t, b, "x").Release(t.Context()))
	})
}

// TestADowngradeThatTooFewNodesHearOf leaves the lock held, and the next renewal goes on with it.
func TestADowngradeThatTooFewNodesHearOf(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		k := take(t, a, "x")
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		isOnly(t, k.Downgrade(t.Context()), redlock.ErrNoQuorum)
		assert.True(t, k.Valid())
		for _, s := range w.Servers()[:3] {
			s.Resume()
		}
		time.Sleep(2 * ttl)
		assert.True(t, k.Valid())
		require.NoError(t, read(t, b, "x").Release(t.Context()))
		_, err := b.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		require.NoError(t, k.Release(t.Context()))
		require.NoError(t, take(t, b, "x").Release(t.Context()))
	})
}

// TestADowngradedLockIsNotHandedOverToAWriter of the same process.
func TestADowngradedLockIsNotHandedOverToAWriter(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		k := take(t, a, "x")
		require.NoError(t, k.Downgrade(t.Context()))
		other := read(t, b, "x")
		got := writerWaits(t, a, "x")
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(time.Second)
		assert.Empty(t, got)
		require.NoError(t, other.Release(t.Context()))
		require.NoError(t, (<-got).Release(t.Context()))
	})
}

// TestReadersWhoseSettingsDiffer share one entry on the nodes, and each is held as its own settings say.
func TestReadersWhoseSettingsDiffer(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var all []*redlock.Lock
		for _, opts := range [][]redlock.Option{
			{}, {redlock.TTL(2 * ttl)}, {redlock.NodeTimeout(time.Second)}, {redlock.Renew(false)}, {redlock.MaxHold(ttl / 2)}, {redlock.MaxHold(ttl / 2)},
		} {
			all = append(all, read(t, l, "x", opts...))
			assert.Equal(t, all[0].Value(), all[len(all)-1].Value())
		}
		time.Sleep(ttl) // MaxHold ends its own only
		for i, k := range all {
			assert.Equal(t, i < 4, k.Valid(), i)
		}
		for _, k := range append(all[:3], read(t, l, "x")) {
			require.NoError(t, k.Release(t.Context()))
		}
	})
}

// TestExclusiveTakesSharedBack, and permits, and leaves the rest of the Locker's defaults.
func TestExclusiveTakesSharedBack(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		readers, _ := open(t, w, redlock.Shared(), redlock.Fair())
		r1, r2 := take(t, readers, "x"), take(t, readers, "x")
		for _, exclusive := range []redlock.Option{redlock.Exclusive(), redlock.Permits(1)} {
			_, err := readers.TryAcquire(t.Context(), "x", exclusive)
			isOnly(t, err, redlock.ErrHeld)
		}
		require.NoError(t, r1.Release(t.Context()))
		require.NoError(t, r2.Release(t.Context()))
		k := take(t, readers, "x", redlock.Exclusive(), redlock.Fenced())
		assert.Positive(t, k.Fence())
		_, err := readers.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var queues atomic.Int32
		time.AfterFunc(time.Second/2, func() {
			for _, s := range w.Servers() {
				if _, there := s.Keys()["redlock:queue:{x}"]; there {
					queues.Add(1)
				}
			}
		})
		others, _ := open(t, w, redlock.Shared(), redlock.Fair())
		_, err = others.Acquire(ctx, "x", redlock.Exclusive())
		isOnly(t, err, context.DeadlineExceeded)
		assert.EqualValues(t, 1, queues.Load(), "it waits in order")
		require.NoError(t, k.Release(t.Context()))
		require.NoError(t, take(t, readers, "x", redlock.Exclusive(), redlock.Shared()).Release(t.Context()))
		set, err := readers.TryAcquireAll(t.Context(), []string{"a", "b"}, redlock.Exclusive())
		require.NoError(t, err)
		require.NoError(t, set.Release(t.Context()))
		_, err = readers.TryAcquireAll(t.Context(), []string{"a", "b"})
		require.ErrorContains(t, err, "take it back with Exclusive")

		seats, _ := open(t, w, redlock.Permits(3))
		only := take(t, seats, "x", redlock.Exclusive())
		_, err = seats.TryAcquire(t.Context(), "x", redlock.Exclusive())
		isOnly(t, err, redlock.ErrHeld)
		require.NoError(t, take(t, seats, "x").Release(t.Context()))
		require.NoError(t, only.Release(t.Context()))
	})
}

func TestSharedWithWhatCannotBe(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		_, err := l.TryAcquire(t.Context(), "x", redlock.Shared(), redlock.Fenced())
		require.ErrorContains(t, err, "leave out Fenced")
		_, err = l.TryAcquire(t.Context(), "x", redlock.Shared(), redlock.Permits(3))
		require.ErrorContains(t, err, "leave out Permits(3)")
		seats, _ := open(t, w, redlock.Permits(3))
		_, err = seats.TryAcquire(t.Context(), "x", redlock.Shared())
		require.ErrorContains(t, err, "leave out Permits(3), or take it back with Exclusive before Shared")
		require.NoError(t, seats.Check(redlock.Shared(), redlock.Exclusive()), "the last counts")
		r := take(t, seats, "x", redlock.Exclusive(), redlock.Shared())
		require.NoError(t, read(t, l, "x").Release(t.Context()))
		require.NoError(t, r.Release(t.Context()))
		for _, name := range []string{"redlock:readers:{x}", "redlock:intent:{x}"} {
			_, err = l.TryAcquire(t.Context(), name)
			require.ErrorContains(t, err, "key of redlock's own")
		}
		require.NoError(t, read(t, l, "x", redlock.Fair()).Release(t.Context()))
	})
}

// TestASetIsNotDowngraded: readers have one name, and the others would be extended no more.
func TestASetIsNotDowngraded(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		k := takeAll(t, l, abc)
		assert.ErrorContains(t, k.Downgrade(t.Context()), "of several names")
		time.Sleep(2 * ttl)
		require.True(t, k.Valid())
		for _, name := range abc {
			_, err := other.TryAcquire(t.Context(), name)
			assert.ErrorIs(t, err, redlock.ErrHeld, name)
		}
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestAPermitIsNotDowngraded: the readers of all slots would be in one set, and void each other.
func TestAPermitIsNotDowngraded(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		permits := []*redlock.Lock{take(t, l, "x", redlock.Permits(3)), take(t, l, "x", redlock.Permits(3))}
		high := permits[0]
		if high.Permit() == 0 {
			high = permits[1]
		}
		for _, k := range permits {
			if k.Permit() == 0 {
				require.NoError(t, k.Release(t.Context()))
			}
		}
		r1 := read(t, l, "x", redlock.TTL(2*ttl))
		assert.ErrorContains(t, high.Downgrade(t.Context()), "permit")
		r2 := read(t, other, "x")
		require.NoError(t, r2.Release(t.Context()))
		time.Sleep(rtt)
		_, err := other.TryAcquire(t.Context(), "x")
		require.True(t, r1.Valid())
		assert.ErrorIs(t, err, redlock.ErrHeld)
		time.Sleep(3 * ttl)
		assert.True(t, r1.Valid())
		assert.True(t, high.Valid())
	})
}

// TestAnExtensionFromBeforeADowngrade, whose answers come behind it, tells of no loss.
func TestAnExtensionFromBeforeADowngrade(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		k := take(t, l, "x")
		extended := make(chan error, 1)
		go func() { extended <- k.Extend(t.Context()) }()
		time.Sleep(leg / 2)
		require.NoError(t, k.Downgrade(t.Context()))
		require.NoError(t, <-extended)
		time.Sleep(2 * rtt)
		require.True(t, k.Valid(), "%v", context.Cause(k.Context()))
		time.Sleep(2 * ttl)
		require.True(t, k.Valid())
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestACloseBesideAReaderThatAsks whether it may share a session is its error.
func TestACloseBesideAReaderThatAsks(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		read(t, l, "x")
		time.Sleep(time.Second)
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		time.AfterFunc(leg, func() { l.Close() })
		_, err := l.TryAcquire(t.Context(), "x", redlock.Shared())
		isOnly(t, err, redlock.ErrClosed)
	})
}

// TestReadersOfDifferentOwnersShareOneLabel, that of the first.
func TestReadersOfDifferentOwnersShareOneLabel(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		a, b := read(t, l, "x", redlock.Owner("a")), read(t, l, "x", redlock.Owner("b"))
		again := read(t, l, "x", redlock.Owner("a"))
		assert.Equal(t, "a", redlock.HolderOf(a.Value()).Owner)
		assert.Equal(t, a.Value(), b.Value())
		assert.Equal(t, a.Value(), again.Value())
		for _, k := range []*redlock.Lock{a, again, b} {
			require.NoError(t, k.Release(t.Context()))
		}
		b = read(t, l, "x", redlock.Owner("b"))
		assert.Equal(t, "b", redlock.HolderOf(b.Value()).Owner)
	})
}

// A throng is a process of which so many callers want the lock again as soon as they have released it.
type throng struct{ writers, readers int }

// throngs has the callers of several processes come again and again for a while. It returns the longest
// time that one of them waited, also for what came too late.
func throngs(t *testing.T, w *sim.World, hold time.Duration, all []throng, opts ...redlock.Option) (longest time.Duration) {
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var callers sync.WaitGroup
	for _, of := range all {
		l, _ := open(t, w)
		for i := range of.writers + of.readers {
			opts := slices.Clone(opts)
			if i >= of.writers {
				opts = append(opts, redlock.Shared())
			}
			callers.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					lock, err := l.Acquire(ctx, "x", opts...)
					mu.Lock()
					longest = max(longest, time.Since(began))
					mu.Unlock()
					if err == nil {
						time.Sleep(hold)
						assert.NoError(t, lock.Release(t.Context()))
					}
				}
			})
		}
	}
	time.Sleep(200 * time.Millisecond)
	stop()
	callers.Wait()
	return longest
}

// TestNobodyStarvesAmongReadersAndWriters that come again at once: each waits for twenty turns at most,
// whether the others are of its own process, or of others, or of both.
func TestNobodyStarvesAmongReadersAndWriters(t *testing.T) {
	for name, all := range map[string][]throng{
		"a reader beside writers of its process":             {{8, 1}},
		"a reader beside two writers of its process":         {{2, 1}},
		"a reader beside writers of another":                 {{16, 0}, {0, 1}},
		"a reader beside two writers of another":             {{2, 0}, {0, 1}},
		"a reader beside writers of its process and another": {{8, 1}, {8, 0}},
		"a reader beside many processes":                     append(slices.Repeat([]throng{{1, 0}}, 16), throng{0, 1}),
		"a writer beside readers of its process":             {{1, 8}},
		"a writer beside readers of another":                 {{1, 0}, {0, 8}},
		"a writer beside readers of many":                    append(slices.Repeat([]throng{{0, 1}}, 16), throng{1, 0}),
		"both in many processes":                             slices.Repeat([]throng{{1, 1}}, 4),
		"both, each of processes of its own":                 slices.Repeat([]throng{{1, 0}, {0, 1}}, 8),
	} {
		for _, hold := range []time.Duration{near / 2, time.Millisecond} {
			for kind, opts := range map[string][]redlock.Option{"": nil, ", fair": {redlock.Fair()}} {
				t.Run(fmt.Sprint(name, ", ", hold, kind), func(t *testing.T) {
					simulate(t, 3, func(t *testing.T, w *sim.World) {
						w.SetNet(sim.Fixed(near / 2))
						longest := throngs(t, w, hold, all, opts...)
						turn := hold + 4*near
						if len(all) > 1 {
							turn = max(turn, 5*time.Millisecond) // of a process
						}
						t.Logf("longest %v, %.1f turns", longest, float64(longest)/float64(turn))
						assert.LessOrEqual(t, longest, 20*turn)
					})
				})
			}
		}
	}
}

// TestADowngradeLetsReadersOfItsProcessIn at once.
func TestADowngradeLetsReadersOfItsProcessIn(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		k := take(t, l, "x")
		got := waits(t.Context(), t, l, redlock.Shared())
		time.Sleep(time.Second)
		assert.LessOrEqual(t, took(func() {
			require.NoError(t, k.Downgrade(t.Context()))
			require.NoError(t, (<-got).Release(t.Context()))
		}), 3*rtt)
		assert.True(t, k.Valid())
	})
}
