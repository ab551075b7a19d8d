package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/compose"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Locker acquires locks with a quorum of its nodes. One Locker serves a whole program: locks of
// different names do not wait for each other. It is safe for concurrent use.
type Locker struct {
	settings settings
	places   []*place // one, or the groups of NewGroups in the order of their names
	groups   []string // names of the places; nil for New
	met      meeting
	events   []*engine.Queue[Event]

	isClosing atomic.Bool   // Close was called
	closed    chan struct{} // closed when Close is called
	done      chan struct{} // closed when Close has done its work
	closeErr  error
}

// A place is a group of servers with its engine.
type place struct {
	locker *Locker
	name   string // name of the group; empty for New
	nodes
	engine  *engine.Engine
	permits *compose.Semaphores
}

// A Node is one independent Redis server, as pool.Open returns it.
type Node = protocol.Node

// New returns a Locker over nodes, which must be independent servers and not replicas of each
// other. N nodes survive the loss of (N-1)/2, so an odd number is best. All clients that compete
// for a name must use the same nodes.
//
// The Locker owns the nodes from here on and closes them in Close, or if New fails. A node that
// belongs to another Locker is refused, and is not closed.
func New(nodes []Node, opts ...LockerOption) (*Locker, error) {
	return owning(nodes, func() (*Locker, error) {
		if len(nodes) == 0 {
			return nil, errors.New("redlock: no nodes: pass at least one; five survive the loss of two")
		}
		s, err := lockerSettings(opts)
		if err != nil {
			return nil, err
		}
		if err := s.checkNodes(nodes); err != nil {
			return nil, err
		}
		l := newLocker(s)
		l.places = []*place{l.newPlace("", "", nodes)}
		return l, nil
	})
}

// owning calls open to create a Locker that owns the nodes. After an error it closes them.
func owning(nodes []protocol.Node, open func() (*Locker, error)) (*Locker, error) {
	own, err := engine.Own(nodes)
	var l *Locker
	if err == nil {
		l, err = open()
	}
	if err != nil {
		closeAll(own)
		engine.Disown(own)
		return nil, err
	}
	return l, nil
}

// newLocker returns a Locker without places.
func newLocker(s *settings) *Locker {
	l := &Locker{settings: *s, closed: make(chan struct{}), done: make(chan struct{})}
	l.settings.optionCache = &optionCache{seed: maphash.MakeSeed()}
	for _, o := range s.observers {
		l.events = append(l.events, engine.NewQueue(func(e Event, dropped int) {
			e.Dropped = dropped
			o.Observe(e)
		}))
	}
	return l
}

// newPlace returns the place of a group's nodes. hash covers all groups (see keys.Groups).
func (l *Locker) newPlace(name, hash string, nodes []protocol.Node) *place {
	s := &l.settings
	p := &place{locker: l, name: name, nodes: slices.Clone(nodes)}
	label := func(random, owner string) string { return withLabel(random, owner, s.wall()) }
	c := engine.Config{Nodes: p.nodes, Clock: s.clock, Wall: s.wall, Jitter: s.jitter, Label: label}
	if l.isObserved() {
		c.Events = p
	}
	if s.guard {
		c.Guard = &guard.Terms{
			Key: s.prefix + record.Key, Groups: hash, Timeout: s.Timeout, MaxTTL: max(s.TTL, s.maxTTL), Life: record.DrawLife,
			Generation: func() string { return record.New("", 1).Generation },
		}
	}
	p.engine = engine.New(c)
	p.permits = compose.NewSemaphores(p.engine, p.nodes, s.clock)
	return p
}

// checkNodes returns an error for too many nodes, for nodes that are nil or duplicated, and for
// nodes that need the memory guard if it is off.
func (s *settings) checkNodes(nodes []protocol.Node) error {
	if n := len(nodes); n > quorum.MaxNodes {
		return fmt.Errorf("redlock: %d nodes, at most %d are possible: five or seven are enough", n, quorum.MaxNodes)
	}
	names := map[string]int{}
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("redlock: node %d is nil", i+1)
		}
		if j, twice := names[n.String()]; twice {
			return fmt.Errorf("redlock: nodes %d and %d are the same, %s: one server must not vote twice", j, i+1, n)
		}
		names[n.String()] = i + 1
		if f, ok := n.(protocol.Forgetful); ok && f.Forgets() && !s.guard {
			return fmt.Errorf("redlock: node %d, %s, fails over, and needs the memory guard, which is turned off", i+1, n)
		}
	}
	return nil
}

// Check returns the error with which Acquire would refuse the options, or nil, and ErrClosed after
// Close. It sends nothing to the nodes. It is for code that gets options long before it acquires a
// lock.
func (l *Locker) Check(opts ...Option) error {
	if l.isClosed() {
		return fmt.Errorf("redlock: %w", ErrClosed)
	}
	_, err := l.settings.with(opts)
	return err
}

// Close releases the locks that are still held, and their contexts end with cause ErrClosed.
// Waiting callers get ErrClosed. Close waits for the nodes for at most the node timeout, and closes
// them. Then it waits for as long for each Observer. If a node cannot be reached, its keys expire.
// Close may be called twice.
func (l *Locker) Close() error {
	if !l.isClosing.CompareAndSwap(false, true) {
		<-l.done
		return l.closeErr
	}
	close(l.closed)
	over, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer l.settings.clock.AfterFunc(l.settings.Timeout, cancel).Stop()
	var all []protocol.Node
	var engines sync.WaitGroup
	for _, p := range l.places {
		all = append(all, p.nodes...)
		engines.Go(func() { _ = p.engine.Close(over) }) // keys on nodes that do not answer in time expire
	}
	engines.Wait()
	l.closeErr = closeAll(all)
	engine.Disown(all)
	l.awaitObservers()
	for _, q := range l.events {
		q.GiveUp()
	}
	close(l.done)
	return l.closeErr
}

// closeAll closes the nodes concurrently, so that a hanging node does not delay the others.
func closeAll(nodes []protocol.Node) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		if n != nil {
			wg.Go(func() { errs[i] = n.Close() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func closedError(op protocol.Op, name string) error {
	return fmt.Errorf("redlock: %s %q: %w", op, name, ErrClosed)
}

// Do waits for the lock name like Acquire, and runs fn while it holds the lock. The context of fn
// ends with ctx, and when the lock is lost; fn must then stop. The lock is released when fn returns
// or panics.
//
// Do returns the error of fn. If the lock was lost or the Locker closed before fn returned, Do
// joins it with an error that matches ErrLost or ErrClosed. Do reports no error if too few nodes
// confirmed the release: the work was protected, and the keys expire.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...Option) error {
	return l.do(ctx, &call{name: name}, fn, opts)
}

// do acquires the lock of asked, runs fn under ctx and the lock, and releases the lock.
func (l *Locker) do(ctx context.Context, asked *call, fn func(context.Context) error, opts []Option) (err error) {
	if fn == nil {
		return fmt.Errorf("redlock: do %q: the function is nil", cmp.Or(asked.name, textOf(asked.names)))
	}
	lock, err := l.acquire(ctx, asked, opts)
	if err != nil {
		return err
	}
	work, cancel := lock.Bind(ctx)
	defer func() {
		cancel()
		ended := lock.Release(context.WithoutCancel(ctx))
		if errors.Is(ended, ErrLost) || errors.Is(ended, ErrClosed) {
			err = errors.Join(err, ended)
		}
	}()
	return fn(work)
}

// isObserved reports whether there are observers. Events cost readings of the clock, each of them a
// system call.
func (l *Locker) isObserved() bool { return len(l.events) > 0 }

// publish puts an event into the queues of all observers.
func (l *Locker) publish(e Event) {
	e.Time = time.Now()
	for _, q := range l.events {
		q.Enter(e, e.Kind.isDetail())
	}
}

// awaitObservers waits for the observers before a call returns: see Observer.
func (l *Locker) awaitObservers() {
	for _, q := range l.events {
		q.Await(l.settings.clock, l.settings.Timeout)
	}
}

// checkName returns the reason a name is invalid, or nil. Any bytes are allowed.
func (l *Locker) checkName(name string) error {
	switch key := l.settings.prefix + name; {
	case name == "":
		return errors.New("redlock: the name of a lock must not be empty")
	case len(key) > maxName:
		return fmt.Errorf("redlock: the name of a lock is too long: %d bytes with its prefix, at most %d: hash it", len(key), maxName)
	case keys.Reserved(key):
		return fmt.Errorf("redlock: %q is a key of redlock's own: choose another name", name)
	}
	return nil
}

// isClosed reports whether Close was called.
func (l *Locker) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
