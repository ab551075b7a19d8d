// Package engine runs the keys of package core: it has the table of keys, the clock and the goroutines.
//
// An event takes the mutex of its key's entry, calls one method of the Key, and carries out the effects in
// their order, under the mutex. So requests reach each node in the order of the decisions, and the context
// of a holder has ended before a node is asked to give the lock back and before the next holder is woken.
// Callers are woken after the mutex is given back, or they would wait for it.
//
// Callers sleep on a channel and their context, and on nothing else. There is no goroutine but those of
// the callers, the nodes and the timer, and for a moment one of a Bond that was lost.
//
// Locks: an entry, then the timers or the hints or a shard of the table or the judge or a Bond, and nothing
// under these. An Owner and Events are called with an entry locked.
package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// A Config is what an Engine is made of.
type Config struct {
	Nodes  []protocol.Node
	Clock  clock.Clock
	Wall   func() time.Time                        // for fencing tokens; nil: time.Now
	Jitter func(limit time.Duration) time.Duration // nil: drawn by lot
	Label  func(value, owner string) string        // makes the value of a lock with an owner; nil: without
	Events Events                                  // nil: nobody wants to know
	Guard  *guard.Terms                            // nil: votes are not judged; its Nodes are set here
}

// Events are told what nodes answer and what comes of votes, in this order, for logs and traces. Like an Owner,
// they must not block and must not call the engine.
type Events interface {
	Answered(Answer)
	// Voted is called when a vote is over; the Failure is nil if it was won.
	Voted(*core.Ballot, *core.Failure)
}

// An Answer is what a node said to a request. Its Tag is that of the Terms.
type Answer struct {
	Tag     any
	OfHeld  bool // it is about a lock that is held, not an acquisition
	Request *protocol.Request
	Node    int
	Reply   *protocol.Reply
	After   time.Duration // from the start of the request
}

// An Engine has the keys of one Locker. It is safe for concurrent use.
type Engine struct {
	nodes    []protocol.Node
	clock    clock.Clock
	wall     func() time.Time
	group    core.Group
	events   Events
	seed     maphash.Seed
	servers  servers
	shards   [64]shard
	timers   timers
	hints    hints
	judge    *judge       // nil without the memory guard
	proposed atomic.Int64 // the last fencing token
	waiters  sync.Pool    // of *waiter; each engine's own, so that channels stay in the bubble of a test
	rooms    sync.Pool    // of *[]core.Effect

	closed  context.Context // has ended: Close was called
	close   context.CancelFunc
	entries atomic.Int64    // of all shards, and one more while a goroutine tells doubts
	empty   context.Context // has ended: there are no entries, after Close
	emptied context.CancelFunc
}

// A shard is a part of the table of keys.
type shard struct {
	mu      sync.Mutex
	entries map[string]*entry
	last    string // the key that was dropped last. A process that takes it again at once goes on with its turn
	turn    core.Turn
}

// New returns an engine that asks the nodes.
func New(c Config) *Engine {
	e := &Engine{nodes: c.Nodes, clock: c.Clock, wall: c.Wall, events: c.Events, seed: maphash.MakeSeed()}
	e.group = core.Group{Nodes: len(c.Nodes), Jitter: c.Jitter, Propose: e.propose, Slack: guard.TokenSlack, Observed: c.Events != nil}
	if e.wall == nil {
		e.wall = time.Now
	}
	if e.group.Jitter == nil {
		e.group.Jitter = func(d time.Duration) time.Duration { return mathrand.N(max(d, 1)) }
	}
	e.group.NewValue = func(owner string) string {
		if owner == "" || c.Label == nil {
			return newValue()
		}
		return c.Label(newValue(), owner)
	}
	if c.Guard != nil {
		of := *c.Guard
		of.Nodes = len(c.Nodes)
		e.group.Epoch, e.judge = of.Key, &judge{engine: e, terms: &of, guard: guard.New(of)}
	}
	e.servers.nodes, e.servers.of = c.Nodes, make([]atomic.Pointer[server], len(c.Nodes))
	for i, n := range c.Nodes {
		e.group.Lots = append(e.group.Lots, hash.Text(hash.Basis, n.String()))
		if _, ok := n.(protocol.Watchable); ok {
			e.group.Hinting.Add(i)
		}
	}
	for i := range e.shards {
		e.shards[i].entries = map[string]*entry{}
	}
	e.rooms.New = func() any { room := make([]core.Effect, 0, 8); return &room }
	e.waiters.New = func() any { return &waiter{woken: make(chan struct{}, 1)} }
	e.timers.engine, e.hints.engine = e, e
	e.closed, e.close = context.WithCancel(context.Background())
	e.empty, e.emptied = context.WithCancel(context.Background())
	return e
}

// newValue draws the value that marks a key as ours: 160 random bits, twice what keeps two owners apart
// for ever, in hexadecimal so that it can be read in redis-cli.
func newValue() string {
	var raw [20]byte
	var text [2 * len(raw)]byte
	rand.Read(raw[:]) // never fails (crypto/rand, since Go 1.24)
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// Jitter draws a duration below limit, which is above zero.
func (e *Engine) Jitter(limit time.Duration) time.Duration { return e.group.Jitter(limit) }

// propose draws a fencing token: the wall clock in microseconds, or more where that has not moved on.
func (e *Engine) propose() int64 {
	for {
		last := e.proposed.Load()
		next := max(e.wall().UnixMicro(), last+1)
		if e.proposed.CompareAndSwap(last, next) {
			return next
		}
	}
}

func (e *Engine) shard(key string) *shard { return &e.shards[maphash.String(e.seed, key)%64] }

// lock returns the locked entry of the key. If there is none it returns nil, or makes one.
func (e *Engine) lock(key string, make bool) *entry {
	s := e.shard(key)
	for {
		s.mu.Lock()
		n := s.entries[key]
		if n == nil && make {
			n = &entry{engine: e}
			n.key.Group, n.key.Name, n.key.Unwatched = &e.group, key, e.hints.isFull()
			if s.last == key {
				n.key.Turn = s.turn
			}
			s.entries[key] = n
			if e.count(1); e.closed.Err() != nil {
				n.key.Close(0)
			}
		}
		s.mu.Unlock()
		if n == nil {
			return nil
		}
		if n.mu.Lock(); !n.gone {
			return n
		}
		n.mu.Unlock()
	}
}

// forget takes an entry out that has nothing to do any more. The entry must be locked.
func (e *Engine) forget(n *entry) {
	n.gone = true
	s := e.shard(n.key.Name)
	s.mu.Lock()
	delete(s.entries, n.key.Name)
	s.last, s.turn = n.key.Name, n.key.Turn
	s.mu.Unlock()
	e.timers.remove(n)
	e.count(-1)
}

// happen has something happen to a key, if the engine has it.
func (e *Engine) happen(key string, do func(*core.Key, clock.Instant)) {
	if n := e.lock(key, false); n != nil {
		n.happen(do)
	}
}

// forAll has something happen to all keys that there are at the moment.
func (e *Engine) forAll(do func(*core.Key, clock.Instant)) {
	var entries []*entry
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		for _, n := range s.entries {
			entries = append(entries, n)
		}
		s.mu.Unlock()
	}
	if len(entries) < 1000 { // a schedule of the simulation can be replayed
		slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.key.Name, b.key.Name) })
	}
	for _, n := range entries {
		n.mu.Lock()
		n.happen(do)
	}
}

// A Lock is a hold of the key of an entry.
type Lock struct {
	*core.Hold
	Token int64 // for fencing; zero if its Terms are not Fenced
	entry *entry
}

// An Owner is told what happens to its hold, in the order in which it happens, while the key is locked. It must
// not block and must not call the engine: it ends contexts, and puts events into a queue.
type Owner interface {
	// Ended is called before a node or another caller can learn of the end.
	Ended(Lock)
	Extended(Lock)
}

// Own makes o the Owner of the hold. It returns false if that has ended: then o is told nothing.
func (l Lock) Own(o Owner) bool {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	l.Shell = o
	return l.Reason == core.Held
}

// A waiter is a Caller, and where it sleeps.
type waiter struct {
	core.Caller
	woken chan struct{}
}

// A call is a waiter that was begun and not ended: it asks something of an entry.
type call struct {
	*waiter
	entry *entry
}

// call begins a call. The entry is locked, and is unlocked then. Many calls can be begun before the first is
// waited for, so that their requests share packets.
func (n *entry) call(c core.Caller, do func(*core.Key, *core.Caller, clock.Instant)) call {
	w := n.engine.waiters.Get().(*waiter)
	w.Caller, w.Shell = c, w
	n.happen(func(k *core.Key, now clock.Instant) { do(k, &w.Caller, now) })
	return call{w, n}
}

// wait returns when the waiter has been told. Otherwise the context has ended, and interrupted is what had
// come of it by then.
func (w call) wait(ctx context.Context) (interrupted *core.Failure) {
	n := w.entry
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
	}
	n.mu.Lock()
	n.happen(func(k *core.Key, now clock.Instant) { interrupted = k.Leave(&w.Caller, now) })
	if interrupted == nil {
		<-w.woken
	}
	return interrupted
}

// done gives the waiter back.
func (w call) done() {
	*w.waiter = waiter{woken: w.woken}
	w.entry.engine.waiters.Put(w.waiter)
}

// Acquire waits in line for the lock, or says why it has not got it. With a context's error the failure is
// what was in the way.
func (e *Engine) Acquire(ctx context.Context, key string, t *core.Terms) (Lock, *core.Failure, error) {
	for {
		lock, f, err := e.arrive(ctx, key, core.Caller{Terms: t})
		if err != nil || f == nil || f.Kind != core.Stale {
			return lock, f, err
		}
	}
}

// arrive is one call that wants the lock. It is Stale if it got the lock, but not to run before that was over.
func (e *Engine) arrive(ctx context.Context, key string, c core.Caller) (Lock, *core.Failure, error) {
	if err := ctx.Err(); err != nil {
		return Lock{}, nil, err
	}
	return e.begin(key, c).grant(ctx)
}

// begin begins a call that wants the lock.
func (e *Engine) begin(key string, c core.Caller) call {
	return e.lock(key, true).call(c, (*core.Key).Arrive)
}

// grant returns what a call that wants the lock has got.
func (w call) grant(ctx context.Context) (Lock, *core.Failure, error) {
	defer w.done()
	if f := w.wait(ctx); f != nil {
		return Lock{}, f, ctx.Err()
	}
	if w.Hold == nil {
		return Lock{}, w.Failure, nil
	}
	lock := Lock{w.Hold, w.Token, w.entry}
	now := w.entry.engine.clock.Now()
	switch err := ctx.Err(); {
	case err != nil: // the caller has given up, and does not want the lock any more
		lock.Drop()
		return Lock{}, &core.Failure{Kind: core.Unknown, At: now}, err
	case now < lock.Deadline():
		return lock, nil, nil
	}
	lock.Release(context.Background())
	return Lock{}, &core.Failure{Kind: core.Stale, At: now}, ctx.Err()
}

// A Target is what a caller wants to lock: a key of an engine.
type Target struct {
	Engine *Engine
	Key    string
}

// Key returns the name of the key.
func (l Lock) Key() string { return l.entry.key.Name }

// Release ends the hold. It returns when a quorum has confirmed that, or another caller has the claim.
func (l Lock) Release(ctx context.Context) (votes int, f *core.Failure) {
	return l.call((*core.Key).Release).outcome(ctx)
}

// Drop releases the hold, and does not wait for that.
func (l Lock) Drop() { l.call((*core.Key).Release) }

// Extend has the claim live for its TTL from now, or for ttl if that is longer.
func (l Lock) Extend(ctx context.Context, ttl time.Duration) (votes int, f *core.Failure) {
	return l.call(extend(ttl)).outcome(ctx)
}

func extend(ttl time.Duration) func(*core.Key, *core.Hold, *core.Caller, clock.Instant) {
	return func(k *core.Key, h *core.Hold, c *core.Caller, now clock.Instant) { k.Extend(h, ttl, c, now) }
}

// Downgrade makes a writer's hold that of a reader, and has the claim live for its TTL from now.
func (l Lock) Downgrade(ctx context.Context) (votes int, f *core.Failure) {
	return l.call((*core.Key).Downgrade).outcome(ctx)
}

// call begins a call that does something with the hold.
func (l Lock) call(do func(*core.Key, *core.Hold, *core.Caller, clock.Instant)) call {
	l.entry.mu.Lock()
	return l.entry.call(core.Caller{}, func(k *core.Key, c *core.Caller, now clock.Instant) { do(k, l.Hold, c, now) })
}

// outcome returns what has come of a call that does something with a hold.
func (w call) outcome(ctx context.Context) (votes int, f *core.Failure) {
	defer w.done()
	if f = w.wait(ctx); f == nil {
		f = w.Failure
	}
	return w.Votes, f
}

// Votes returns how many nodes have the lock, as far as is known.
func (l Lock) Votes() int {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	return l.Claim.Votes()
}

// Value returns the lock's value, for use outside of this process: see core.Hold.Tell.
func (l Lock) Value() string {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	return l.Tell()
}

// Deadline returns when the hold ends, if nothing extends it; zero if it has ended.
func (l Lock) Deadline() clock.Instant {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	if l.Reason != core.Held {
		return 0
	}
	return l.Hold.Deadline()
}

// IsWanted reports whether a caller of this process has the lock or competes for it.
func (e *Engine) IsWanted(key string) bool {
	return e.is(key, func(k *core.Key, _ clock.Instant) bool { return k.IsWanted() })
}

// IsKnown reports whether the key is wanted here, or other processes have wanted it within the last second.
func (e *Engine) IsKnown(key string) bool {
	return e.is(key, (*core.Key).IsKnown)
}

// IsTurnOver reports whether a caller that waits would let other processes go first.
func (e *Engine) IsTurnOver(key string) bool { return e.is(key, (*core.Key).IsTurnOver) }

func (e *Engine) is(key string, so func(*core.Key, clock.Instant) bool) bool {
	n := e.lock(key, false)
	if n == nil {
		return false
	}
	defer n.mu.Unlock()
	return so(&n.key, e.clock.Now())
}

// Entries returns how many keys the engine has.
func (e *Engine) Entries() int { return int(e.entries.Load()) }

// Home returns the node that keeps the order of a key, if it is well.
func (e *Engine) Home(key string) int { return (&core.Key{Group: &e.group, Name: key}).Home() }

// Busy returns how many keys have something to do, for tests.
func (e *Engine) Busy() (busy int) {
	e.forAll(func(k *core.Key, _ clock.Instant) {
		if !k.IsQuiet() {
			busy++
		}
	})
	return busy
}

// count counts n entries more. After Close, the last that goes ends its waiting.
func (e *Engine) count(n int64) {
	if e.entries.Add(n) == 0 && e.closed.Err() != nil {
		e.emptied()
	}
}

// Close ends all holds and all waiting. It returns when the nodes have answered all that was asked, or the
// context ends.
func (e *Engine) Close(ctx context.Context) error {
	e.close()
	e.count(0)
	e.forAll((*core.Key).Close)
	select {
	case <-e.empty.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
