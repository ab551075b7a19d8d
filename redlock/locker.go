package redlock

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
)

// A Locker takes locks by a quorum of its nodes. It is safe for concurrent
// use, and one Locker serves a whole program: locks of different names do not
// wait for each other.
type Locker struct {
	nodes    []Node
	settings settings
	parkers  parkers
	queue    queue
	agenda   agenda
	inflight inflight
	tokens   tokens
	guard    *guard // nil without

	seed  maphash.Seed
	order [64]sync.Mutex // see orderOf

	closed   chan struct{} // Close was called
	done     chan struct{} // and has done its work
	closeErr error
}

// New returns a Locker over nodes, which must be independent servers: no
// replicas of each other. An odd number is best; N nodes survive the loss of
// (N-1)/2. All clients that compete for a name must use the same nodes.
//
// The nodes belong to the Locker from here on, which closes them in Close, and
// also if New returns an error.
func New(nodes []Node, opts ...Option) (*Locker, error) {
	l, err := newLocker(nodes, opts)
	if err != nil {
		closeAll(nodes)
		return nil, err
	}
	return l, nil
}

func newLocker(nodes []Node, opts []Option) (*Locker, error) {
	if len(nodes) == 0 {
		return nil, errors.New("redlock: no nodes; give at least one, five survive the loss of two")
	}
	if len(nodes) > maxNodes {
		return nil, fmt.Errorf("redlock: %d nodes, at most %d are possible; five or seven are enough", len(nodes), maxNodes)
	}
	names := map[string]int{}
	for i, n := range nodes {
		if n == nil {
			return nil, fmt.Errorf("redlock: node %d is nil", i)
		}
		if j, twice := names[n.String()]; twice {
			return nil, fmt.Errorf("redlock: nodes %d and %d are the same, %s: one server must not vote twice", j, i, n)
		}
		names[n.String()] = i
	}
	base := defaults()
	s, err := base.with(opts, true)
	if err != nil {
		return nil, err
	}
	l := &Locker{
		nodes:    slices.Clone(nodes),
		settings: *s,
		seed:     maphash.MakeSeed(),
		closed:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	l.parkers.clock = s.clock
	l.agenda.clock = s.clock
	l.inflight.idle = make(chan struct{}, 1)
	if s.guard {
		l.guard = newGuard(s, l.nodes)
	}
	return l, nil
}

// orderOf returns the lock under which requests for a key are submitted. A
// fixed number of them serves all keys: they are held only while requests are
// queued.
func (l *Locker) orderOf(key string) *sync.Mutex {
	return &l.order[maphash.String(l.seed, key)%uint64(len(l.order))]
}

// Close releases the locks that are still held (their contexts end with cause
// ErrClosed), makes callers that wait return ErrClosed, waits for tries and
// releases under way, for no longer than the Locker's node timeout, and closes
// the nodes. A node that cannot be reached by then keeps its keys until they
// expire. Close may be called twice.
func (l *Locker) Close() error {
	if !l.inflight.close() {
		<-l.done
		return l.closeErr
	}
	close(l.closed)
	for _, k := range l.agenda.close() {
		k.closeUp(l.settings.clock.Now())
	}
	l.inflight.wait(&l.parkers, l.settings.timeout())
	l.closeErr = closeAll(l.nodes)
	close(l.done)
	return l.closeErr
}

// closeAll closes the nodes at the same time: one that hangs must not keep the
// others.
func closeAll(nodes []Node) error {
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

func closedError(op Op, name string) error {
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
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...Option) (err error) {
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	defer func() {
		unlink()
		cancel(nil)
		ended := lock.Release(context.WithoutCancel(ctx))
		if errors.Is(ended, ErrLost) || errors.Is(ended, ErrClosed) {
			err = errors.Join(err, ended)
		}
	}()
	return fn(work)
}
