package redsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Mutex is a lock shared by programs on many machines under its name. It is safe for concurrent
// use. A second Lock of a locked Mutex waits, just like the Lock of another Mutex.
type Mutex struct {
	locker        *redlock.Locker
	nodes         nodeList
	name          string
	expiry        time.Duration
	tries         int
	delayFunc     DelayFunc
	timeoutFactor float64
	driftFactor   float64
	ownValues     bool // WithGenValueFunc

	mu    sync.Mutex
	value string
	lock  *redlock.Lock // last lock; nil before Lock, or before Extend of a mutex with WithValue
}

// held contains the locks held by mutexes of this process, because a value can belong to any of
// them.
var held sync.Map // of *redlock.Lock, by ownValue

type ownValue struct {
	locker *redlock.Locker
	value  string
}

// Name returns the name of the mutex. The key is the Locker's Prefix followed by the name.
func (m *Mutex) Name() string { return m.name }

// Value returns the value of the keys, or the value from WithValue. It is empty before Lock.
func (m *Mutex) Value() string {
	_, value := m.holding()
	return value
}

// Until returns the end of the lock unless it is extended, by this machine's wall clock. It returns
// the zero time if the mutex is not locked.
func (m *Mutex) Until() time.Time {
	lock, _ := m.holding()
	if lock == nil {
		return time.Time{}
	}
	return lock.Until()
}

// Held returns the lock of the last Lock, or of Extend of a WithValue, and nil before. The lock's
// Context ends when the lock does. The lock is not renewed.
func (m *Mutex) Held() *redlock.Lock {
	lock, _ := m.holding()
	return lock
}

func (m *Mutex) holding() (*redlock.Lock, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lock == nil {
		if other, ok := held.Load(ownValue{m.locker, m.value}); ok {
			return other.(*redlock.Lock), m.value
		}
	}
	return m.lock, m.value
}

// keep makes lock the current lock of the mutex.
func (m *Mutex) keep(lock *redlock.Lock) {
	key := ownValue{m.locker, lock.Value()}
	held.Store(key, lock)
	context.AfterFunc(lock.Context(), func() { held.CompareAndDelete(key, lock) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lock, m.value = lock, lock.Value()
}

// TryLock is TryLockContext with a context that never ends.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext is LockContext with one try.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.lockContext(ctx, 1) }

// Lock is LockContext with a context that never ends.
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext locks m. It tries up to the number of WithTries, and waits between tries.
//
// The error is
//
//   - *ErrTaken if another client held the lock at the last try,
//   - an error that matches redlock.ErrNoQuorum and contains a *RedisError per failed node, if too
//     many nodes failed,
//   - ErrFailed and the error of ctx if ctx has ended, and
//   - redlock.ErrClosed, or an error for an invalid name or option, at the first try.
func (m *Mutex) LockContext(ctx context.Context) error { return m.lockContext(ctx, m.tries) }

func (m *Mutex) lockContext(ctx context.Context, tries int) error {
	ctx = cmp.Or(ctx, context.Background()) // redsync takes nil
	if err := m.check(); err != nil {
		return err
	}
	err := ErrFailed
	for i := range tries {
		var lock *redlock.Lock
		if i > 0 {
			lock, err = m.rest(ctx, m.delayFunc(i), err)
		}
		var vote *redlock.QuorumError
		if lock == nil && (i == 0 || errors.As(err, &vote)) {
			lock, err = m.locker.TryAcquire(ctx, m.name, m.options()...)
		}
		switch {
		case lock != nil:
			m.keep(lock)
			return nil
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return m.failure(err, ErrFailed)
		case !errors.As(err, &vote):
			return m.failure(err, nil) // another try would not help
		}
	}
	if err == ErrFailed {
		return err
	}
	return m.failure(err, nil)
}

// check returns an error for unsupported options.
func (m *Mutex) check() error {
	switch {
	case m.ownValues:
		return fmt.Errorf("redsync: mutex %q: WithGenValueFunc is not supported, because values must be unique: use Value after Lock", m.name)
	case m.driftFactor > 0.01:
		return fmt.Errorf("redsync: mutex %q: WithDriftFactor(%v) is not supported: redlock.Drift defines the drift, 1 %% and 2 ms", m.name, m.driftFactor)
	case m.delayFunc == nil:
		return fmt.Errorf("redsync: mutex %q: WithRetryDelayFunc(nil): pass a function", m.name)
	}
	return nil
}

// options returns the options of the lock. The lock is exclusive, even if the Locker defaults to
// shared locks or permits.
func (m *Mutex) options() []redlock.Option {
	return []redlock.Option{
		redlock.TTL(m.expiry), redlock.NodeTimeout(time.Duration(float64(m.expiry) * m.timeoutFactor)),
		redlock.Renew(false), redlock.Exclusive(),
	}
}

// rest waits for d after a try that ended with last, and returns the lock if it becomes free before
// that. It waits through an outage. An error other than a QuorumError ends the tries.
func (m *Mutex) rest(ctx context.Context, d time.Duration, last error) (*redlock.Lock, error) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var vote *redlock.QuorumError
	isHeld := errors.As(last, &vote) && errors.Is(vote.Err, redlock.ErrHeld)
	switch {
	case isHeld && vote.Causes == nil && d < minRetryDelay: // held by this process: the try cost no round trip, unlike a try of redsync
		_, _ = m.locker.Inspect(ctx, m.name)
	case isHeld && d >= minRetryDelay: // shorter waits would end in the middle of an attempt
		lock, err := m.locker.Acquire(waiting, m.name, m.options()...)
		if err == nil || !errors.As(err, &vote) {
			return lock, err
		}
	}
	<-waiting.Done()
	return nil, last
}

// Unlock is UnlockContext with a context that never ends.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases the lock on all nodes, even if ctx has ended; ctx limits only the wait for
// confirmation. It returns true if a quorum has confirmed the release.
//
// The error is ErrLockAlreadyExpired if the lock was lost or released before, so that work may have
// run unprotected. It is *ErrTaken as well if another client has the lock by now. The error is
// redlock.ErrNoQuorum or the error of ctx if too few nodes have confirmed the release, which then
// continues in the background.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	return m.change(ctx, ErrLockAlreadyExpired, (*redlock.Lock).Release, func(ctx context.Context, value string) error {
		return m.locker.ReleaseValue(ctx, m.name, value)
	})
}

// Extend is ExtendContext with a context that never ends.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext extends the lock by the expiry of m from now on, if a quorum still holds it. It
// never shortens the lock: if another Mutex with the same value has extended it for longer, the
// later end stays.
//
// The error is ErrExtendFailed and *ErrTaken if the lock was lost or released. It is
// redlock.ErrNoQuorum or the error of ctx if too few nodes answered: the lock is then held until
// Until, and the call can be repeated.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	return m.change(ctx, ErrExtendFailed, func(lock *redlock.Lock, ctx context.Context) error {
		return lock.ExtendFor(ctx, m.expiry)
	}, func(ctx context.Context, value string) error {
		lock, err := m.locker.Adopt(ctx, m.name, value, m.options()...)
		if err == nil {
			m.keep(lock) // locked elsewhere; from now on this mutex manages it
		}
		return err
	})
}

// change releases or extends the lock of m, or the lock with its value. over is the error for an
// ended lock.
func (m *Mutex) change(ctx context.Context, over error,
	own func(*redlock.Lock, context.Context) error, other func(context.Context, string) error) (bool, error) {
	ctx = cmp.Or(ctx, context.Background()) // redsync takes nil
	err := fmt.Errorf("mutex %q was not locked: %w", m.name, redlock.ErrReleased)
	switch lock, value := m.holding(); {
	case lock != nil:
		err = own(lock, ctx)
	case value != "":
		err = other(ctx, value)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, redlock.ErrClosed):
		return false, m.failure(err, over)
	case errors.Is(err, redlock.ErrLost), errors.Is(err, redlock.ErrReleased):
		return false, m.ended(ctx, err, over)
	}
	return false, m.failure(err, nil)
}

// ended returns the redsync error for an ended lock. As in redsync, only Unlock distinguishes a
// lock that is gone from a lock that another client has; Extend does not.
func (m *Mutex) ended(ctx context.Context, err, over error) error {
	var vote *redlock.QuorumError
	gone := &ErrTaken{err: err}
	if over == ErrExtendFailed {
		if errors.As(err, &vote) {
			gone.Nodes, _ = m.nodes.errors(vote)
		}
		if gone.Nodes == nil { // the loss was known before: no node has the lock
			gone.Nodes = m.nodes.all()
		}
	} else if seen, _ := m.locker.Inspect(ctx, m.name); seen != nil {
		for i, state := range seen.Nodes {
			if state.Err == nil && state.Value != "" && state.Value != m.Value() {
				gone.Nodes = append(gone.Nodes, i)
			}
		}
		if len(gone.Nodes) <= len(seen.Nodes)/2 {
			gone = nil
		}
	}
	f := m.failure(err, over).(*failure)
	if gone != nil {
		f.nodes = append([]error{gone}, f.nodes...)
	}
	return f
}

// Valid is ValidContext with a context that never ends.
//
// Deprecated: Use Until, or the Context of Held.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext asks all nodes whether a quorum holds the lock. It returns false with an *ErrTaken,
// which lists the nodes without the lock, or with redlock.ErrNoQuorum or the error of ctx if too
// few nodes answered.
//
// Deprecated: Use Until, or the Context of Held.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	ctx = cmp.Or(ctx, context.Background()) // redsync takes nil
	lock, value := m.holding()
	seen, err := m.locker.Inspect(ctx, m.name)
	if err != nil {
		return false, m.failure(err, nil)
	}
	n, gone := 0, &ErrTaken{err: fmt.Errorf("redsync: mutex %q: %w", m.name, redlock.ErrLost)}
	for i, state := range seen.Nodes {
		switch {
		case state.Err != nil:
		case value != "" && state.Value == value:
			n++
		default:
			gone.Nodes = append(gone.Nodes, i)
		}
	}
	if n <= len(seen.Nodes)/2 || lock != nil && !lock.Valid() {
		return false, gone
	}
	return true, nil
}
