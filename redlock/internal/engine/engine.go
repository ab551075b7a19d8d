// Package engine runs the keys of package core. It owns the table of keys, the clock and the
// goroutines.
//
// For each event it locks the entry of the key, calls one method of the Key, and carries out the
// effects in order, under the mutex. So each node gets the requests in the order of the decisions,
// and the context of a holder ends before a node is asked to release the lock and before the next
// holder is woken. Callers are woken after the entry is unlocked, because they would block on it.
//
// Callers sleep only on a channel and their context. Only callers, nodes, the timer, and briefly a lost Bond have goroutines.
//
// Order of locks: first an entry, then one of the timers, the hints, a shard of the table, the
// judge or a Bond. No lock is taken under one of the latter. An Owner and Events are called with an
// entry locked.
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
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// A Config holds the parameters of an Engine.
type Config struct {
	Nodes  []protocol.Node
	Clock  clock.Clock
	Wall   func() time.Time                        // for fencing tokens; nil: time.Now
	Jitter func(limit time.Duration) time.Duration // nil for random durations
	Label  func(value, owner string) string        // makes the value of a lock with an owner; may be nil
	Events Events                                  // nil without observers
	Guard  *guard.Terms                            // nil without a judge; its Nodes are set by New
}

// Events observes the answers of nodes and the outcomes of attempts, in order, for logs and traces.
// Like an Owner, it must not block or call the engine.
type Events interface {
	Answered(Answer)
	// Voted is called at the end of an attempt; the Failure is nil if it was won.
	Voted(*core.Ballot, *core.Failure)
}

// An Answer is the reply of a node to a request. Its Tag is copied from the Terms.
type Answer struct {
	Tag     any
	OfHeld  bool // the request is about a held lock
	Request *protocol.Request
	Node    int
	Reply   *protocol.Reply
	After   time.Duration // response time
}

// An Engine runs the keys of one Locker. It is safe for concurrent use.
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
	proposed atomic.Int64 // last fencing token
	waiters  sync.Pool    // pool of *waiter; each engine has its own, so that channels stay in the bubble of a test
	buffers  sync.Pool    // of *[]core.Effect

	closed  context.Context // ends when Close is called
	close   context.CancelFunc
	entries atomic.Int64    // number of entries in all shards, plus one while a goroutine reports doubts
	empty   context.Context // ends when no entries are left after Close
	emptied context.CancelFunc
}

// A shard is a part of the table of keys.
type shard struct {
	mu      sync.Mutex
	entries map[string]*entry
	last    string // key of the last dropped entry, so that a process that takes the key again continues its turn
	turn    core.Turn
}

// New returns an engine for the nodes.
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
		e.group.Lots = append(e.group.Lots, keys.Hash(keys.Basis, n.String()))
		if _, ok := n.(protocol.Watchable); ok {
			e.group.Hinting.Add(i)
		}
	}
	for i := range e.shards {
		e.shards[i].entries = map[string]*entry{}
	}
	e.buffers.New = func() any { buffer := make([]core.Effect, 0, 8); return &buffer }
	e.waiters.New = func() any { return &waiter{woken: make(chan struct{}, 1)} }
	e.timers.engine, e.hints.engine = e, e
	e.closed, e.close = context.WithCancel(context.Background())
	e.empty, e.emptied = context.WithCancel(context.Background())
	return e
}

// newValue returns the value of a new lock: 160 random bits, twice the number that keeps two owners
// apart, in hexadecimal so that redis-cli shows it readably.
func newValue() string {
	var raw [20]byte
	var text [2 * len(raw)]byte
	rand.Read(raw[:]) // never fails (crypto/rand, since Go 1.24)
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// Jitter returns a random duration below limit, which must be positive.
func (e *Engine) Jitter(limit time.Duration) time.Duration { return e.group.Jitter(limit) }

// propose returns a new fencing token: the wall clock in microseconds, or more if the clock stands
// still.
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

// lock returns the locked entry of the key. Without an entry it returns nil, or creates one.
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

// forget drops an idle entry. The entry must be locked.
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

// apply applies an event to a key, if the engine has the key.
func (e *Engine) apply(key string, do func(*core.Key, clock.Instant)) {
	if n := e.lock(key, false); n != nil {
		n.apply(do)
	}
}

// forAll applies an event to every key in the table.
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
	if len(entries) < 1000 { // sorted, so that a schedule of the simulation can be replayed
		slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.key.Name, b.key.Name) })
	}
	for _, n := range entries {
		n.mu.Lock()
		n.apply(do)
	}
}

// A Lock is a hold of the key of an entry.
type Lock struct {
	*core.Hold
	Token int64 // fencing token; zero unless its Terms are Fenced
	entry *entry
}

// An Owner observes its hold, in order, while the key is locked. It must not block or call the
// engine: it ends contexts and queues events.
type Owner interface {
	// Ended is called before a node or another caller can learn about the end.
	Ended(Lock)
	Extended(Lock)
}

// Own makes o the Owner of the hold. If the hold has ended, Own returns false and never calls o.
func (l Lock) Own(o Owner) bool {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	l.Ref = o
	return l.Reason == core.Held
}

// A waiter is a Caller with the channel that it sleeps on.
type waiter struct {
	core.Caller
	woken chan struct{}
}

// A call is a waiter in progress.
type call struct {
	*waiter
	entry *entry
}

// call begins a call, and unlocks the entry. Several calls can begin before the first wait, so that
// their requests share packets.
func (n *entry) call(c core.Caller, do func(*core.Key, *core.Caller, clock.Instant)) call {
	w := n.engine.waiters.Get().(*waiter)
	w.Caller, w.Ref = c, w
	n.apply(func(k *core.Key, now clock.Instant) { do(k, &w.Caller, now) })
	return call{w, n}
}

// wait waits for the outcome. If the context ends first, interrupted is the failure at that time.
func (w call) wait(ctx context.Context) (interrupted *core.Failure) {
	n := w.entry
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
	}
	n.mu.Lock()
	n.apply(func(k *core.Key, now clock.Instant) { interrupted = k.Leave(&w.Caller, now) })
	if interrupted == nil {
		<-w.woken
	}
	return interrupted
}

// done returns the waiter to its pool.
func (w call) done() {
	*w.waiter = waiter{woken: w.woken}
	w.entry.engine.waiters.Put(w.waiter)
}

// Acquire waits in line for the lock. Without a lock it returns the failure. If the context ends
// first, it also returns the context's error, and the failure describes that moment.
func (e *Engine) Acquire(ctx context.Context, key string, t *core.Terms) (Lock, *core.Failure, error) {
	for {
		lock, f, err := e.arrive(ctx, key, core.Caller{Terms: t})
		if err != nil || f == nil || f.Kind != core.Stale {
			return lock, f, err
		}
	}
}

// arrive makes one call that wants the lock. The failure is Stale if the lock ended before the
// caller could run.
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

// grant returns the outcome of a call that wants the lock.
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
	case err != nil: // the caller has given up
		lock.Drop()
		return Lock{}, &core.Failure{Kind: core.Unknown, At: now}, err
	case now < lock.Deadline():
		return lock, nil, nil
	}
	lock.Release(context.Background())
	return Lock{}, &core.Failure{Kind: core.Stale, At: now}, ctx.Err()
}

// A Target is a key of an engine to lock.
type Target struct {
	Engine *Engine
	Key    string
}

// Key returns the name of the key.
func (l Lock) Key() string { return l.entry.key.Name }

// Release ends the hold. It returns after a quorum has confirmed, or after a handover.
func (l Lock) Release(ctx context.Context) (votes int, f *core.Failure) {
	return l.call((*core.Key).Release).outcome(ctx)
}

// Drop releases the hold without waiting.
func (l Lock) Drop() { l.call((*core.Key).Release) }

// Extend prolongs the claim to its TTL from now, or to ttl if that is longer.
func (l Lock) Extend(ctx context.Context, ttl time.Duration) (votes int, f *core.Failure) {
	return l.call(extend(ttl)).outcome(ctx)
}

func extend(ttl time.Duration) func(*core.Key, *core.Hold, *core.Caller, clock.Instant) {
	return func(k *core.Key, h *core.Hold, c *core.Caller, now clock.Instant) { k.Extend(h, ttl, c, now) }
}

// Downgrade makes a writer a reader, and extends the claim to its TTL from now.
func (l Lock) Downgrade(ctx context.Context) (votes int, f *core.Failure) {
	return l.call((*core.Key).Downgrade).outcome(ctx)
}

// call begins a call about the hold.
func (l Lock) call(do func(*core.Key, *core.Hold, *core.Caller, clock.Instant)) call {
	l.entry.mu.Lock()
	return l.entry.call(core.Caller{}, func(k *core.Key, c *core.Caller, now clock.Instant) { do(k, l.Hold, c, now) })
}

// outcome returns the outcome of a call about a hold.
func (w call) outcome(ctx context.Context) (votes int, f *core.Failure) {
	defer w.done()
	if f = w.wait(ctx); f == nil {
		f = w.Failure
	}
	return w.Votes, f
}

// Votes returns the number of nodes that hold the lock, by their answers.
func (l Lock) Votes() int {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	return l.Claim.Votes()
}

// Value returns the value for use outside of this process; see core.Hold.Expose.
func (l Lock) Value() string {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	return l.Expose()
}

// Deadline returns the end of the hold if no extension follows; zero after the end.
func (l Lock) Deadline() clock.Instant {
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	if l.Reason != core.Held {
		return 0
	}
	return l.Hold.Deadline()
}

// IsWanted reports whether a caller of this process holds the lock or competes for it.
func (e *Engine) IsWanted(key string) bool {
	return e.is(key, func(k *core.Key, _ clock.Instant) bool { return k.IsWanted() })
}

// IsKnown reports whether a caller of this process wants the key, or another process wanted it
// within the last second.
func (e *Engine) IsKnown(key string) bool {
	return e.is(key, (*core.Key).IsKnown)
}

// IsTurnOver reports whether a waiting caller would let other processes go first.
func (e *Engine) IsTurnOver(key string) bool { return e.is(key, (*core.Key).IsTurnOver) }

func (e *Engine) is(key string, so func(*core.Key, clock.Instant) bool) bool {
	n := e.lock(key, false)
	if n == nil {
		return false
	}
	defer n.mu.Unlock()
	return so(&n.key, e.clock.Now())
}

// Entries returns the number of keys in the engine.
func (e *Engine) Entries() int { return int(e.entries.Load()) }

// Home returns the node that keeps the queue of a key if it is healthy.
func (e *Engine) Home(key string) int { return (&core.Key{Group: &e.group, Name: key}).Home() }

// Busy returns the number of keys with something to do, for tests.
func (e *Engine) Busy() (busy int) {
	e.forAll(func(k *core.Key, _ clock.Instant) {
		if !k.IsQuiet() {
			busy++
		}
	})
	return busy
}

// count adds n entries. When the last entry leaves after Close was called, count lets Close return.
func (e *Engine) count(n int64) {
	if e.entries.Add(n) == 0 && e.closed.Err() != nil {
		e.emptied()
	}
}

// Close ends all holds and all waiting. It returns after all outstanding answers, or at the end of
// the context.
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
