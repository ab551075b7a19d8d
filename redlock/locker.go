package redlock

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/membership"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Locker takes locks by a quorum of its nodes. It is safe for concurrent
// use, and one Locker serves a whole program: locks of different names do not
// wait for each other.
type Locker struct {
	settings   settings
	groups     []*group        // one, or those of NewGroups in the order of their names
	membership *membership.Map // of NewGroups; nil for New
	events     []*eventQueue

	isClosing atomic.Bool   // Close was called
	closed    chan struct{} // likewise, and no try may begin
	done      chan struct{} // and it has done its work
	closeErr  error
}

// A Node is one independent Redis server, as pool.Open returns it.
type Node = protocol.Node

// New returns a Locker over nodes, which must be independent servers: no
// replicas of each other. An odd number is best; N nodes survive the loss of
// (N-1)/2. All clients that compete for a name must use the same nodes.
//
// The nodes belong to the Locker from here on, which closes them in Close, and
// also if New returns an error. A node that belongs to another Locker is refused,
// because each would close it for the other, and is not closed.
func New(nodes []Node, opts ...LockerOption) (*Locker, error) {
	return owning(nodes, func() (*Locker, error) { return newLocker(nodes, opts) })
}

// owning returns the Locker that open makes of nodes which are its own from here on. If there is an
// error they are closed.
func owning(nodes []protocol.Node, open func() (*Locker, error)) (*Locker, error) {
	own, err := owners.claim(nodes)
	var l *Locker
	if err == nil {
		l, err = open()
	}
	if err != nil {
		closeAll(own)
		owners.disclaim(own)
		return nil, err
	}
	return l, nil
}

// owners has the nodes of all Lockers of the process that are not closed.
var owners = registry{nodes: map[protocol.Node]struct{}{}}

// A registry is a set of nodes that have an owner.
type registry struct {
	mu    lockorder.Mutex[lockorder.Owners]
	nodes map[protocol.Node]struct{}
}

// claim enters the nodes, and returns those that had no owner. If others have
// one, the error names the first of them.
func (r *registry) claim(nodes []protocol.Node) (own []protocol.Node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, n := range nodes {
		if _, taken := r.nodes[keyOf(n)]; !taken {
			if key := keyOf(n); key == nil || !slices.ContainsFunc(own, func(o protocol.Node) bool { return keyOf(o) == key }) {
				own = append(own, n)
			}
		} else if err == nil {
			err = fmt.Errorf("redlock: node %d, %s, belongs to another Locker already, which would close it: open nodes for each Locker", i, n)
		}
	}
	for _, n := range own {
		if key := keyOf(n); key != nil {
			r.nodes[key] = struct{}{}
		}
	}
	return own, err
}

func (r *registry) disclaim(nodes []protocol.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range nodes {
		delete(r.nodes, keyOf(n))
	}
}

// keyOf returns n if it is a pointer, and nil otherwise: of values that are equal
// it is not known whether they are one node.
func keyOf(n protocol.Node) protocol.Node {
	if t := reflect.TypeOf(n); t == nil || t.Kind() != reflect.Pointer || t.Elem().Size() == 0 {
		return nil
	}
	return n
}

func newLocker(nodes []protocol.Node, opts []LockerOption) (*Locker, error) {
	if len(nodes) == 0 {
		return nil, errors.New("redlock: no nodes; give at least one, five survive the loss of two")
	}
	if err := checkCount(len(nodes)); err != nil {
		return nil, err
	}
	s, err := lockerSettings(opts)
	if err != nil {
		return nil, err
	}
	if err := s.checkNodes(nodes); err != nil {
		return nil, err
	}
	l := newLockerWith(s)
	l.groups = []*group{l.newGroup(nodes, s)}
	return l, nil
}

// newLockerWith returns a Locker that has no groups yet.
func newLockerWith(s *settings) *Locker {
	l := &Locker{settings: *s, closed: make(chan struct{}), done: make(chan struct{})}
	l.settings.variants = &variants{seed: maphash.MakeSeed()}
	for _, o := range s.observers {
		l.events = append(l.events, &eventQueue{observer: o})
	}
	return l
}

// places returns the groups in which a name is locked: one, or two, in the order in which all clients
// take them, while a change of the map moves the name.
func (l *Locker) places(name string) []*group {
	if l.membership == nil {
		return l.groups
	}
	var groups []*group
	for _, m := range l.membership.Places(l.settings.prefix + name) {
		groups = append(groups, groupOf(m))
	}
	return groups
}

// checkCount refuses more nodes than a vote has room for.
func checkCount(n int) error {
	if n > quorum.MaxNodes {
		return fmt.Errorf("redlock: %d nodes, at most %d are possible; five or seven are enough", n, quorum.MaxNodes)
	}
	return nil
}

// checkNodes refuses nodes that are missing, or twice there, or need the memory guard without it.
func (s *settings) checkNodes(nodes []protocol.Node) error {
	names := map[string]int{}
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("redlock: node %d is nil", i)
		}
		if j, twice := names[n.String()]; twice {
			return fmt.Errorf("redlock: nodes %d and %d are the same, %s: one server must not vote twice", j, i, n)
		}
		names[n.String()] = i
		if f, ok := n.(protocol.Forgetful); ok && f.Forgets() && !s.guard {
			return fmt.Errorf("redlock: node %d, %s, fails over, and needs the memory guard, which is turned off", i, n)
		}
	}
	return nil
}

// Check returns why Acquire would refuse the options, or nil. It is for code that is given options long
// before it acquires a lock. It asks no node. ErrClosed follows a Close.
func (l *Locker) Check(opts ...Option) error {
	if isDone(l.closed) {
		return fmt.Errorf("redlock: %w", ErrClosed)
	}
	_, err := l.settings.with(opts)
	return err
}

// Close releases the locks that are still held (their contexts end with cause
// ErrClosed), makes callers that wait return ErrClosed, waits for tries and
// releases under way, for no longer than the Locker's node timeout, and closes
// the nodes. A node that cannot be reached by then keeps its keys until they
// expire. Then it waits as long at most for each Observer to be told. Close may be
// called twice.
func (l *Locker) Close() error {
	if !l.isClosing.CompareAndSwap(false, true) {
		<-l.done
		return l.closeErr
	}
	for _, g := range l.groups {
		g.inflight.close()
	}
	close(l.closed)
	l.membership.Close()
	errs := make([]error, len(l.groups))
	var all sync.WaitGroup
	for i, g := range l.groups {
		all.Go(func() { errs[i] = g.close() })
	}
	all.Wait()
	l.closeErr = errors.Join(errs...)
	l.groups[0].awaitObservers()
	for _, q := range l.events {
		q.giveUp()
	}
	close(l.done)
	return l.closeErr
}

// closeAll closes the nodes at the same time: one that hangs must not keep the
// others.
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

// Do runs fn while holding the lock name. It waits for the lock as Acquire
// does. The context that fn gets ends with ctx, and when the lock is lost; fn
// must then stop. The lock is released when fn returns or panics.
//
// Do returns fn's error, joined with one that matches ErrLost or ErrClosed if the
// lock was lost, or the Locker closed, before fn returned. A release that too few
// nodes confirmed is no error here: the work was protected, and what remains
// expires by itself.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("redlock: Do(%q): the function is nil", name)
	}
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return underLock(ctx, lock, fn)
}

// underLock runs fn under ctx and the lock, and releases the lock.
func underLock(ctx context.Context, lock *Lock, fn func(context.Context) error) (err error) {
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
