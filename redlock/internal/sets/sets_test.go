package sets_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/sets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 3 * time.Second

var abc = []string{"a", "b", "c"}

// A process has an engine on the servers of a World.
type process struct {
	*engine.Engine
	terms core.Terms
}

// A told is an Owner that is told of the end.
type told func(engine.Lock)

func (t told) Ended(l engine.Lock) { t(l) }
func (told) Extended(engine.Lock)  {}

func begin(t *testing.T, w *sim.World) *process {
	c := w.NewClient(1)
	p := &process{engine.New(engine.Config{Nodes: c.Nodes(), Clock: c.Clock()}), core.Terms{TTL: ttl, Timeout: 500 * time.Millisecond, Renew: true, Patience: 3 * time.Second}}
	t.Cleanup(func() { assert.NoError(t, p.Close(context.Background())) })
	return p
}

func (p *process) set(names ...string) *sets.Set {
	return setOf(p.Engine, &p.terms, names)
}

func setOf(e *engine.Engine, t *core.Terms, names []string) *sets.Set {
	s := &sets.Set{Terms: t}
	for _, name := range slices.Sorted(slices.Values(names)) {
		s.Targets = append(s.Targets, engine.Target{Engine: e, Key: name})
	}
	return s
}

// try tries once.
func (p *process) try(t *testing.T, names ...string) (*engine.Bond, *sets.Failure) {
	b, f, err := p.set(names...).Try(t.Context(), engine.Schedule{})
	require.NoError(t, err)
	require.True(t, (b == nil) != (f == nil))
	return b, f
}

// take gets names that are free.
func (p *process) take(t *testing.T, names ...string) *engine.Bond {
	b, f := p.try(t, names...)
	require.Nil(t, f)
	return b
}

// waits acquires the names in a goroutine.
func (p *process) waits(t *testing.T, names ...string) <-chan *engine.Bond {
	got := make(chan *engine.Bond, 1)
	go func() {
		b, f, err := p.set(names...).Acquire(t.Context())
		assert.NoError(t, err)
		assert.Nil(t, f)
		got <- b
	}()
	return got
}

func free(t *testing.T, b *engine.Bond) {
	_, f := b.Release(t.Context())
	require.Nil(t, f)
}

// holding returns how many servers have each of the names.
func holding(w *sim.World, names ...string) (n []int) {
	for _, name := range names {
		n = append(n, simtest.Holding(w, name))
	}
	return n
}

// locks returns how many there are on all servers.
func locks(w *sim.World) (n int) {
	for _, s := range w.Servers() {
		n += len(s.Locks())
	}
	return n
}

func TestASetIsOneRoundTripAndOneEnd(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		for _, get := range []func() *engine.Bond{
			func() *engine.Bond { return p.take(t, abc...) },
			func() *engine.Bond { return <-p.waits(t, abc...) },
		} {
			var b *engine.Bond
			assert.Equal(t, simtest.RTT, simtest.Took(func() { b = get() }))
			synctest.Wait()
			assert.Equal(t, []int{5, 5, 5}, holding(w, abc...))
			for _, name := range abc {
				_, f := other.try(t, name)
				require.NotNil(t, f)
				assert.Equal(t, core.ByOther, f.Kind)
			}
			time.Sleep(10 * ttl)
			assert.Positive(t, b.Deadline(), "it is renewed")
			assert.Equal(t, simtest.RTT, simtest.Took(func() { free(t, b) }))
			free(t, other.take(t, abc...))
			time.Sleep(simtest.RTT)
			assert.Zero(t, locks(w))
		}
	})
}

// TestASetIsAllOrNone, and its failure tells which name was in the way.
func TestASetIsAllOrNone(t *testing.T) {
	for i, name := range abc {
		for _, local := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", in this process: ", local), func(t *testing.T) {
				simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
					p, other := begin(t, w), begin(t, w)
					kind := core.ByOther
					if local {
						other, kind = p, core.ByUs
					}
					held := other.take(t, name)
					_, f := p.try(t, abc...)
					require.NotNil(t, f)
					assert.Equal(t, kind, f.Kind)
					assert.Equal(t, i, f.Target)
					assert.Equal(t, []int{i}, f.InTheWay)
					assert.InDelta(t, ttl, f.Remaining, float64(ttl/10))
					time.Sleep(simtest.RTT)
					want := []int{0, 0, 0}
					want[i] = 5
					assert.Equal(t, want, holding(w, abc...))
					free(t, held)
					free(t, p.take(t, abc...))
				})
			})
		}
	}
}

func TestAnOutageSaysMoreThanAName(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		other.take(t, "a")
		for _, s := range w.Servers()[:3] {
			s.SetWrongType("b")
		}
		_, f := p.try(t, abc...)
		require.NotNil(t, f)
		assert.Equal(t, core.NoQuorum, f.Kind)
		assert.Equal(t, 1, f.Target)
		assert.Contains(t, f.InTheWay, 0)
	})
}

// TestASetIsTriedAgain as its Schedule says, all at once each time.
func TestASetIsTriedAgain(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		held := other.take(t, "c")
		time.AfterFunc(time.Second, func() { free(t, held) })
		b, f, err := p.set(abc...).Try(t.Context(), engine.Schedule{Retries: engine.Forever, Interval: 300 * time.Millisecond})
		require.NoError(t, err)
		require.Nil(t, f)
		free(t, b)
		other.take(t, "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, f, err = p.set(abc...).Try(ctx, engine.Schedule{Retries: engine.Forever, Interval: 300 * time.Millisecond})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotNil(t, f)
		assert.Equal(t, []int{2}, f.InTheWay)
		time.Sleep(simtest.RTT)
		assert.Equal(t, []int{0, 0, 5}, holding(w, abc...))
		_, f, err = p.set(abc...).Try(ctx, engine.Schedule{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Nil(t, f)
	})
}

// TestASetThatIsInTheWayIsWaitedFor: what comes before it is held meanwhile, and what comes behind is free.
// When it is free the rest takes a vote.
func TestASetThatIsInTheWayIsWaitedFor(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		held := other.take(t, "b")
		got := p.waits(t, "d", "c", "b", "a")
		time.Sleep(10 * ttl)
		assert.Equal(t, []int{5, 5, 0, 0}, holding(w, "a", "b", "c", "d"))
		free(t, other.take(t, "c", "d"))
		_, f := other.try(t, "a")
		require.NotNil(t, f)
		free(t, held)
		released := time.Now()
		b := <-got
		assert.LessOrEqual(t, time.Since(released), 6*simtest.RTT, "a hint and two votes")
		time.Sleep(10 * ttl)
		assert.Equal(t, []int{5, 5, 5, 5}, holding(w, "a", "b", "c", "d"))
		free(t, b)
		time.Sleep(simtest.RTT)
		assert.Zero(t, locks(w))
	})
}

// TestTheTermsOfASetHoldFromItsBeginning, and not for the waiting.
func TestTheTermsOfASetHoldFromItsBeginning(t *testing.T) {
	for name, terms := range map[string]core.Terms{"not renewed": {}, "a longest time": {Renew: true, MaxHold: ttl}} {
		for _, wait := range []time.Duration{0, 10 * ttl} {
			t.Run(fmt.Sprint(name, " after ", wait), func(t *testing.T) {
				simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
					p, other := begin(t, w), begin(t, w)
					p.terms.Renew, p.terms.MaxHold = terms.Renew, terms.MaxHold
					if wait > 0 {
						held := other.take(t, "b")
						time.AfterFunc(wait, func() { free(t, held) })
					}
					b := <-p.waits(t, abc...)
					ended := make(chan core.Reason, 1)
					began := time.Now()
					require.True(t, b.Own(told(func(l engine.Lock) { ended <- l.Reason })))
					reason := <-ended
					assert.InDelta(t, ttl, time.Since(began), float64(2*simtest.RTT+ttl/50))
					assert.Equal(t, map[string]core.Reason{"not renewed": core.Overdue, "a longest time": core.HeldLong}[name], reason)
				})
			})
		}
	}
}

// TestASetOfTwoGroups of servers takes one name in both, as readers or not, and begins its time when it is complete.
func TestASetOfTwoGroups(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("readers: ", shared), func(t *testing.T) {
			simtest.Simulate(t, 6, func(t *testing.T, w *sim.World) {
				in := func(first int) *engine.Engine {
					c := w.NewClient(1)
					e := engine.New(engine.Config{Nodes: c.Nodes()[first : first+3], Clock: c.Clock()})
					t.Cleanup(func() { assert.NoError(t, e.Close(context.Background())) })
					return e
				}
				terms := core.Terms{TTL: ttl, Timeout: 500 * time.Millisecond, Renew: true, MaxHold: ttl, Shared: shared}
				both := sets.Set{Terms: &terms}
				for _, e := range []*engine.Engine{in(0), in(3)} {
					both.Targets = append(both.Targets, engine.Target{Engine: e, Key: "a"})
				}
				other := sets.Set{Targets: []engine.Target{{Engine: in(3), Key: "a"}}, Terms: &core.Terms{TTL: ttl, Timeout: time.Second, Renew: true}}
				held, _, err := other.Try(t.Context(), engine.Schedule{})
				require.NoError(t, err)
				_, f, err := both.Try(t.Context(), engine.Schedule{})
				require.NoError(t, err)
				assert.Equal(t, []int{1}, f.InTheWay)
				time.AfterFunc(4*ttl, func() { free(t, held) })
				b, f, err := both.Acquire(t.Context())
				require.NoError(t, err)
				require.Nil(t, f)
				ended := make(chan engine.Target, 1)
				began := time.Now()
				b.Own(told(func(l engine.Lock) { ended <- l.Target() }))
				assert.Contains(t, both.Targets, <-ended)
				assert.InDelta(t, ttl, time.Since(began), float64(ttl/10))
				time.Sleep(simtest.RTT)
				assert.Zero(t, locks(w))
			})
		})
	}
}

// TestWhatASetHasIsGivenBackWhenItsWaitingEnds, and the failure tells for which name it waited.
func TestWhatASetHasIsGivenBackWhenItsWaitingEnds(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("in this process: ", local), func(t *testing.T) {
			simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				p, other := begin(t, w), begin(t, w)
				if local {
					other = p
				}
				held := other.take(t, "b")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, f, err := p.set(abc...).Acquire(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotNil(t, f)
				assert.Equal(t, []int{1}, f.InTheWay)
				time.Sleep(simtest.RTT)
				assert.Equal(t, []int{0, 5, 0}, holding(w, abc...))
				free(t, held)
				time.Sleep(2 * time.Second)
				assert.Zero(t, locks(w))
				assert.Zero(t, p.Entries())
			})
		})
	}
}

// TestWhereverItsContextEndsNothingIsLeft of a set.
func TestWhereverItsContextEndsNothingIsLeft(t *testing.T) {
	simtest.Simulate(t, 3, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		p.terms.Renew = false
		for end := time.Duration(0); end < 100*time.Millisecond; end += simtest.Leg / 2 {
			held := other.take(t, "b")
			time.AfterFunc(20*time.Millisecond, func() { free(t, held) })
			ctx, cancel := context.WithTimeout(t.Context(), end)
			b, f, err := p.set(abc...).Acquire(ctx)
			cancel()
			if b != nil {
				assert.NoError(t, err)
				assert.Nil(t, f)
				free(t, b)
			} else {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
			time.Sleep(time.Second)
			assert.Zero(t, locks(w), end)
		}
	})
}

func TestCloseEndsSetsAndTheWaitingForThem(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		held := other.take(t, "b")
		whole := p.take(t, "x", "y")
		failed := make(chan *sets.Failure)
		go func() { _, f, _ := p.set(abc...).Acquire(t.Context()); failed <- f }()
		time.Sleep(time.Second)
		assert.Equal(t, []int{5, 5, 0, 5, 5}, holding(w, "a", "b", "c", "x", "y"))
		require.NoError(t, p.Close(t.Context()))
		assert.Equal(t, core.AfterClose, (<-failed).Kind)
		h, _ := whole.First()
		assert.Equal(t, core.Closed, h.Reason)
		assert.Equal(t, []int{0, 5, 0, 0, 0}, holding(w, "a", "b", "c", "x", "y"))
		_, f := p.try(t, abc...)
		assert.Equal(t, core.AfterClose, f.Kind)
		free(t, held)
	})
}

// TestASetBeginsAnewWhenItLosesANameWhileItWaits.
func TestASetBeginsAnewWhenItLosesANameWhileItWaits(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		held := other.take(t, "c")
		got := p.waits(t, abc...)
		time.Sleep(time.Second)
		assert.Equal(t, []int{5, 5, 5}, holding(w, abc...))
		for _, s := range w.Servers()[:3] {
			s.Set("a", "by hand", 5*time.Second)
		}
		time.Sleep(2 * time.Second)
		assert.Zero(t, simtest.Holding(w, "b"), "what came after it is not kept while it is waited for again")
		time.Sleep(2 * ttl)
		assert.Equal(t, []int{5, 5, 5}, holding(w, abc...))
		free(t, held)
		b := <-got
		assert.NotEqual(t, "by hand", w.Servers()[0].Keys()["a"])
		free(t, b)
	})
}

// TestANameThatIsLostEndsAll, and the others are free for others.
func TestANameThatIsLostEndsAll(t *testing.T) {
	for _, name := range abc {
		t.Run(name, func(t *testing.T) {
			simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				p := begin(t, w)
				b := p.take(t, abc...)
				ended := make(chan string, 3)
				require.True(t, b.Own(told(func(l engine.Lock) { ended <- l.Key() })))
				time.Sleep(time.Second)
				for _, s := range w.Servers()[:3] {
					s.Set(name, "another", time.Hour)
				}
				assert.Equal(t, name, <-ended)
				h, _ := b.First()
				assert.Equal(t, name, h.Key())
				assert.True(t, h.Reason.IsLoss())
				require.NotNil(t, h.Lost)
				time.Sleep(simtest.RTT)
				for _, each := range abc {
					if each != name {
						assert.Zero(t, simtest.Holding(w, each), each)
					}
				}
				assert.Equal(t, 3, simtest.Holding(w, name), "another's is left alone")
				assert.Empty(t, ended, "it ends once")
			})
		})
	}
}

// TestASetDoesNotPassThoseWhoWaitInItsProcess: they came first.
func TestASetDoesNotPassThoseWhoWaitInItsProcess(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		p, other := begin(t, w), begin(t, w)
		held := other.take(t, "b")
		first := p.waits(t, "b")
		time.Sleep(time.Second)
		var behind atomic.Bool
		w.Watch(func(s sim.Step) {
			if s.Key == "c" {
				behind.Store(true)
			}
		})
		second := p.waits(t, abc...)
		time.Sleep(time.Second)
		assert.False(t, behind.Load(), "it asks for no name behind one that others wait for")
		free(t, held)
		single := <-first
		time.Sleep(10 * time.Second)
		assert.Empty(t, second)
		free(t, single)
		free(t, <-second)
	})
}

// TestOfTwoThatHaveWonANameEachOneGetsBoth: the one that has won the first name tries again, and the other gives
// way.
func TestOfTwoThatHaveWonANameEachOneGetsBoth(t *testing.T) {
	simtest.Simulate(t, 3, func(t *testing.T, w *sim.World) {
		net := sim.Fixed(simtest.Leg)
		net.Travel = func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			switch {
			case l.Op != protocol.OpAcquire || l.Reply:
			case l.Key == "x" && l.Client == 1: // behind the other's, and before its y
				return simtest.Leg * 3 / 2, false
			case l.Key == "y" && l.Client == 0:
				return 2 * simtest.Leg, false
			}
			return simtest.Leg, false
		}
		w.SetNet(net)
		got := make([]*engine.Bond, 2)
		var all sync.WaitGroup
		for i := range got {
			p := begin(t, w)
			all.Go(func() { got[i], _ = p.try(t, "x", "y") })
		}
		all.Wait()
		assert.NotNil(t, got[0])
		assert.Nil(t, got[1])
	})
}

// TestSetsNeverWaitInACircle, whatever names they have in common, and in which processes they are.
func TestSetsNeverWaitInACircle(t *testing.T) {
	for _, processes := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				engines := make([]*process, processes)
				for i := range engines {
					engines[i] = begin(t, w)
				}
				names := []string{"a", "b", "c", "d", "e", "f"}
				var held sync.Map
				var all sync.WaitGroup
				for i := range 12 {
					dice := rand.New(rand.NewPCG(uint64(i), 0))
					all.Go(func() {
						for range 20 {
							mine := slices.Clone(names)
							dice.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
							mine = mine[:1+dice.IntN(4)]
							ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
							b, f, err := engines[i%processes].set(mine...).Acquire(ctx)
							cancel()
							if !assert.NoError(t, err, "%v", mine) || !assert.Nil(t, f) {
								return
							}
							for _, name := range mine {
								_, taken := held.LoadOrStore(name, i)
								assert.False(t, taken, name)
							}
							time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond)
							for _, name := range mine {
								held.Delete(name)
							}
							_, f2 := b.Release(t.Context())
							assert.Nil(t, f2)
						}
					})
				}
				all.Wait()
				time.Sleep(simtest.RTT)
				assert.Zero(t, locks(w))
			})
		})
	}
}

// TestProcessesTakeTurnsAtASet that all of them want again and again, without splitting each other's votes: each
// waits for its turn at the first name, and has the rest by a vote.
func TestProcessesTakeTurnsAtASet(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		const processes, rounds = 4, 20
		w.SetNet(sim.Fixed(time.Millisecond / 2))
		var all sync.WaitGroup
		took := simtest.Took(func() {
			for range processes {
				p := begin(t, w)
				all.Go(func() {
					for range rounds {
						b, _, err := p.set(abc...).Acquire(t.Context())
						if assert.NoError(t, err) {
							free(t, b)
						}
					}
				})
			}
			all.Wait()
		})
		assert.Less(t, took/(processes*rounds), 4*time.Millisecond, "a release, a hint, and two votes")
	})
}

// TestALargeSetGetsItsTurn beside callers that take a single name of it again as soon as they have released it.
func TestALargeSetGetsItsTurn(t *testing.T) {
	simtest.Simulate(t, 5, func(t *testing.T, w *sim.World) {
		var names []string
		for i := range 128 {
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		p := begin(t, w)
		b := p.take(t, names...)
		free(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 16 {
			single := begin(t, w)
			all.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				for ctx.Err() == nil {
					l, f, err := single.Acquire(ctx, names[i*8], &single.terms)
					if err != nil || !assert.Nil(t, f) {
						return
					}
					time.Sleep(100 * time.Millisecond)
					l.Release(t.Context())
				}
			})
		}
		time.Sleep(time.Second)
		for range 3 {
			took := simtest.Took(func() { b = <-p.waits(t, names...) })
			t.Log(took)
			assert.Less(t, took, 12*time.Second)
			free(t, b)
		}
		cancel()
		all.Wait()
	})
}
