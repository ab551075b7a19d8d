package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestVanishedLeaderIsReplacedAfterItsTTL(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first := campaign(t, w, "first")
		before := <-first.begun
		second := campaign(t, w, "second")
		time.Sleep(time.Minute) // the lock is renewed in the meantime
		assert.Empty(t, second.begun)
		assert.Positive(t, before.Remaining())

		began := time.Now()
		first.Crash()
		next := <-second.begun
		assert.LessOrEqual(t, time.Since(began), ttl+2*rtt)
		assert.Greater(t, next.Token(), before.Token())
		assert.Zero(t, before.Remaining())
		second.leave(t)
		first.stop()
		first.Resume()
		require.NoError(t, <-first.err)
	})
}

func TestResignedLeaderIsReplacedAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first := campaign(t, w, "first")
		<-first.begun
		second := campaign(t, w, "second")
		time.Sleep(time.Second)
		for range 5 {
			began := time.Now()
			first.result <- nil
			next := <-second.begun
			assert.LessOrEqual(t, time.Since(began), 300*time.Millisecond)
			assert.Empty(t, first.begun, "it stands back")
			time.Sleep(time.Second) // the candidate campaigns again
			second.result <- nil
			assert.Greater(t, (<-first.begun).Token(), next.Token())
			time.Sleep(time.Second)
		}
		second.leave(t)
		first.leave(t)
	})
}

// TestOneCandidateLeadsWithAnyLocker: an election has one leader, even if the Locker defaults to
// shared locks or permits.
func TestOneCandidateLeadsWithAnyLocker(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		for _, kind := range []redlock.LockerOption{redlock.Shared(), redlock.Permits(2)} {
			first := campaign(t, w, "first", kind)
			time.Sleep(time.Second)
			require.Empty(t, first.err)
			require.Len(t, first.begun, 1)
			second := campaign(t, w, "second", kind)
			time.Sleep(time.Second)
			assert.Empty(t, second.begun)
			second.leave(t)
			first.leave(t)
		}
	})
}

func TestStoppedLeaderIsReplacedAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, tired := campaign(t, w, "first"), errors.New("tired")
		<-first.begun
		second := campaign(t, w, "second")
		time.Sleep(time.Second)
		began := time.Now()
		first.leave(t)
		<-second.begun
		assert.LessOrEqual(t, time.Since(began), 300*time.Millisecond)
		require.ErrorIs(t, <-first.over, context.Canceled)

		third := campaign(t, w, "third")
		time.Sleep(time.Second)
		second.result <- tired
		began = time.Now()
		<-third.begun
		assert.LessOrEqual(t, time.Since(began), 300*time.Millisecond)
		require.ErrorIs(t, <-second.err, tired, "an error ends the campaign")
		third.leave(t)
	})
}

// TestLockIsFreeWhenRunReturns: the process may exit right after that.
func TestLockIsFreeWhenRunReturns(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first := campaign(t, w, "first")
		<-first.begun
		time.Sleep(time.Second)
		first.leave(t)
		assert.LessOrEqual(t, sim.Holding(w, "office"), 2)

		first = campaign(t, w, "first")
		<-first.begun
		for _, s := range w.Servers() {
			s.Hang()
		}
		began := time.Now()
		first.leave(t)
		assert.LessOrEqual(t, time.Since(began), time.Second, "it does not wait long for servers that hang")
	})
}

// TestLossEndsTheTerm: the candidate campaigns again after its callback has returned.
func TestLossEndsTheTerm(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		c := campaign(t, w, "first")
		before := <-c.begun
		time.Sleep(time.Second)
		for _, s := range w.Servers() {
			s.Hang()
		}
		require.ErrorIs(t, <-c.over, redlock.ErrLost)
		assert.Zero(t, before.Remaining())
		time.Sleep(time.Minute)
		assert.Empty(t, c.begun, "an outage is waited out")
		for _, s := range w.Servers() {
			s.Resume()
		}
		assert.Greater(t, (<-c.begun).Token(), before.Token())
		c.leave(t)
	})
}

func TestCandidateLeadsOnlyAfterItsCallbackReturned(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		ctx, stop := context.WithCancel(t.Context())
		office, running, terms := election.New(l, "office"), 0, 0
		require.NoError(t, office.Run(ctx, "deaf", func(ctx context.Context, _ election.Term) error {
			running++
			defer func() { running-- }()
			require.Equal(t, 1, running)
			if terms++; terms == 2 {
				stop()
				return nil
			}
			for _, s := range w.Servers() {
				s.Del("office")
			}
			<-ctx.Done()
			time.Sleep(3 * ttl)
			return nil
		}))
	})
}

func TestPanicReleasesTheLock(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		office := election.New(l, "office")
		assert.PanicsWithValue(t, "oops", func() {
			office.Run(t.Context(), "a", func(context.Context, election.Term) error { panic("oops") })
		})
		k, err := l.TryAcquire(t.Context(), "office")
		require.NoError(t, err)
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestPermanentErrorEndsTheCampaign: an invalid call, a key of another type and a closed Locker end
// it. An outage does not.
func TestPermanentErrorEndsTheCampaign(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lead := func(context.Context, election.Term) error { return nil }
		var none context.Context
		office := election.New(l, "office")
		assert.ErrorContains(t, office.Run(none, "a", lead), "the context is nil")
		assert.ErrorContains(t, office.Run(t.Context(), "", lead), "has no ID")
		assert.ErrorContains(t, office.Run(t.Context(), "a", nil), "the function is nil")
		assert.ErrorContains(t, election.New(nil, "office").Run(t.Context(), "a", lead), "the Locker is nil")
		assert.ErrorContains(t, office.Run(t.Context(), "a\n", lead), "must be printable text")
		assert.ErrorContains(t, election.New(l, "").Run(t.Context(), "a", lead), "must not be empty")
		for _, s := range w.Servers()[:3] {
			s.SetWrongType("office")
		}
		assert.ErrorIs(t, office.Run(t.Context(), "a", lead), redlock.ErrWrongType)
		require.NoError(t, l.Close())
		assert.ErrorIs(t, office.Run(t.Context(), "a", lead), redlock.ErrClosed)
	})
}

func TestObserverSeesTheLeader(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		office := election.New(l, "office")
		none, err := office.Leader(t.Context())
		require.NoError(t, err)
		assert.False(t, none.Exists())

		ctx, leave := context.WithCancel(t.Context())
		seen := make(chan string, 100)
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			for leader, err := range office.Leaders(ctx, 100*time.Millisecond) {
				switch {
				case err != nil:
					assert.ErrorIs(t, err, redlock.ErrNoQuorum)
					seen <- "?"
				case leader.Exists():
					seen <- leader.ID
				default:
					seen <- "-"
				}
			}
		}()
		time.Sleep(time.Second)
		first := campaign(t, w, "first")
		<-first.begun
		leader, err := office.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "first", leader.ID)
		assert.WithinDuration(t, w.Now(), leader.Since, 2*time.Second)
		assert.InDelta(t, ttl, leader.Left, float64(100*time.Millisecond))
		time.Sleep(3 * time.Second)
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		time.Sleep(time.Second)
		for _, s := range w.Servers()[:3] {
			s.Resume()
		}
		time.Sleep(time.Second)
		first.result <- nil
		<-first.begun
		time.Sleep(time.Second)
		first.leave(t)
		time.Sleep(time.Second)
		leave()
		<-watching
		close(seen)
		var all []string
		for s := range seen {
			all = append(all, s)
		}
		assert.Equal(t, []string{"-", "first", "?", "first", "-", "first", "-"}, all)

		for _, s := range w.Servers()[:3] {
			s.Set("office", "the lock of another library", time.Hour)
		}
		leader, err = office.Leader(t.Context())
		require.NoError(t, err)
		assert.True(t, leader.Exists())
		assert.Empty(t, leader.ID)
	})
}

// TestOneLeadsAtATime: in true time, this holds in spite of pauses, partitions and servers that
// forget. A working candidate trusts its term only while Remaining is positive, as the
// documentation requires.
func TestOneLeadsAtATime(t *testing.T) {
	t.Parallel()
	terms := 0
	for seed := range uint64(24) {
		inUse(t, seed, func(t *testing.T, w *sim.World) { terms += trouble(t, w, seed) })
	}
	assert.Greater(t, terms, 40, "the schedules show nothing")
}

// trouble plays two minutes with three candidates.
func trouble(t *testing.T, w *sim.World, seed uint64) int {
	var mu sync.Mutex
	var terms []election.Term
	dice := rand.New(rand.NewPCG(seed, 1))
	ctx, stop := context.WithCancel(t.Context())
	var campaigns sync.WaitGroup
	var clients []*sim.Client
	for i := range 3 {
		l, c := open(t, w)
		clients = append(clients, c)
		campaigns.Go(func() {
			err := election.New(l, "office").Run(ctx, fmt.Sprint("candidate ", i), func(ctx context.Context, term election.Term) error {
				mu.Lock()
				for _, before := range terms {
					assert.Greater(t, term.Token(), before.Token(), "seed %d: tokens rise", seed)
				}
				terms = append(terms, term)
				mu.Unlock()
				for ctx.Err() == nil {
					mu.Lock()
					for _, other := range terms {
						assert.False(t, other != term && term.Remaining() > 0 && other.Remaining() > 0, "seed %d: two lead", seed)
					}
					mu.Unlock()
					c.Sleep(100 * time.Millisecond)
				}
				return nil
			})
			assert.NoError(t, err)
		})
	}
	for range 24 {
		time.Sleep(time.Duration(1+dice.IntN(9)) * time.Second)
		switch dice.IntN(5) {
		case 0:
			clients[dice.IntN(3)].Pause()
		case 1:
			for _, c := range clients {
				c.Resume()
			}
		case 2: // one candidate is cut off from some servers
			who, most := dice.IntN(3), dice.IntN(6)
			w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				return leg, l.Client == who && l.Node < most
			}})
		case 3:
			w.SetNet(sim.Fixed(leg))
		case 4:
			first, n := dice.IntN(5), dice.IntN(4)
			for i := range n {
				s := w.Servers()[(first+i)%5]
				s.Crash()
				s.Flush()
				s.Restart()
			}
		}
	}
	w.SetNet(sim.Fixed(leg))
	for _, c := range clients {
		c.Resume()
	}
	time.Sleep(3 * ttl)
	mu.Lock()
	valid := 0
	for _, term := range terms {
		if term.Remaining() > 0 {
			valid++
		}
	}
	mu.Unlock()
	assert.Equal(t, 1, valid, "seed %d: one leads in the end", seed)
	stop()
	campaigns.Wait()
	return len(terms)
}
