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

// A Mutex is a lock that programs on many machines share by its name. It is safe for concurrent
// use; a second Lock of a Mutex that is locked waits, as one of another Mutex does.
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
	lock  *redlock.Lock // the last one; nil before Lock, or Extend of a WithValue
}

// held has the locks that mutexes of this process hold: a value can be that of any of them.
var held sync.Map // of *redlock.Lock, by ownValue

type ownValue struct {
	locker *redlock.Locker
	value  string
}

// Name returns the mutex's name, which with the Locker's Prefix is its key.
func (m *Mutex) Name() string { return m.name }

// Value returns the value of the keys, or that of WithValue; it is empty before Lock.
func (m *Mutex) Value() string {
	_, value := m.holding()
	return value
}

// Until returns when the lock ends unless it is extended, by this machine's wall clock: the zero time
// if it is not locked, or not any more.
func (m *Mutex) Until() time.Time {
	lock, _ := m.holding()
	if lock == nil {
		return time.Time{}
	}
	return lock.Until()
}

// Held returns the lock that the last Lock got, or Extend of a WithValue, and nil before: its Context ends
// when it does. It is not renewed.
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

// keep makes the lock the mutex's.
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

// LockContext locks m. It tries as often as WithTries says, and waits in between.
//
// Errors: *ErrTaken if at the last try another held the lock; one with a *RedisError for each node
// that failed, and redlock.ErrNoQuorum, if too many nodes did; ErrFailed and the error of ctx if that
// has ended; redlock.ErrClosed, or what is wrong with the name or an option, at the first try.
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
			return m.failure(err, nil) // trying again does not help
		}
	}
	if err == ErrFailed {
		return err
	}
	return m.failure(err, nil)
}

// check refuses options that cannot be followed.
func (m *Mutex) check() error {
	switch {
	case m.ownValues:
		return fmt.Errorf("redsync: mutex %q: WithGenValueFunc is not supported, because values must be unique: use Value after Lock", m.name)
	case m.driftFactor > 0.01:
		return fmt.Errorf("redsync: mutex %q: WithDriftFactor(%v) is not supported: the drift is that of redlock.Drift, 1 %% and 2 ms", m.name, m.driftFactor)
	case m.delayFunc == nil:
		return fmt.Errorf("redsync: mutex %q: WithRetryDelayFunc(nil): pass a function", m.name)
	}
	return nil
}

// options are those of the lock. It is exclusive whatever the Locker is for otherwise.
func (m *Mutex) options() []redlock.Option {
	return []redlock.Option{
		redlock.TTL(m.expiry), redlock.NodeTimeout(time.Duration(float64(m.expiry) * m.timeoutFactor)),
		redlock.Renew(false), redlock.Exclusive(),
	}
}

// rest waits for d after a try that ended with last, and returns the lock if a lock that was held is free before. An
// outage is waited out. An error other than a QuorumError ends the tries.
func (m *Mutex) rest(ctx context.Context, d time.Duration, last error) (*redlock.Lock, error) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var vote *redlock.QuorumError
	isHeld := errors.As(last, &vote) && errors.Is(vote.Err, redlock.ErrHeld)
	switch {
	case isHeld && vote.Causes == nil && d < minRetryDelay: // held by this process: the try has cost no round trip, as one of redsync does
		_, _ = m.locker.Inspect(ctx, m.name)
	case isHeld && d >= minRetryDelay: // shorter waits end in the middle of votes
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

// UnlockContext releases the lock on all nodes, also if ctx has ended, which bounds the waiting only.
// It returns true if a quorum has confirmed that.
//
// Errors: ErrLockAlreadyExpired if the lock was lost or released before, so that work may have run
// unprotected, and *ErrTaken as well if another has the lock by now; redlock.ErrNoQuorum or that of ctx if too few nodes have confirmed. The release goes
// on in the background then.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	return m.change(ctx, ErrLockAlreadyExpired, (*redlock.Lock).Release, func(ctx context.Context, value string) error {
		return m.locker.ReleaseValue(ctx, m.name, value)
	})
}

// Extend is ExtendContext with a context that never ends.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext lets the lock last for the expiry of m from now on, if a quorum still holds it. It
// never shortens: a lock that another Mutex has extended for longer, by the same value, keeps that
// expiry.
//
// Errors: ErrExtendFailed and *ErrTaken if the lock is lost or released; redlock.ErrNoQuorum or that of ctx if too
// few nodes answered: the lock is held until Until, and extending it again makes sense.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	return m.change(ctx, ErrExtendFailed, func(lock *redlock.Lock, ctx context.Context) error {
		return lock.ExtendFor(ctx, m.expiry)
	}, func(ctx context.Context, value string) error {
		lock, err := m.locker.Adopt(ctx, m.name, value, m.options()...)
		if err == nil {
			m.keep(lock) // it was taken elsewhere, and is this mutex's from now on
		}
		return err
	})
}

// change releases or extends the lock that m has, or that of its value. over is the error for one that
// has ended.
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

// ended returns the error for a lock that has ended, in the words of redsync. Its Extend tells a lock that is gone from
// one that another has no more than this does; its Unlock does.
func (m *Mutex) ended(ctx context.Context, err, over error) error {
	var vote *redlock.QuorumError
	gone := &ErrTaken{err: err}
	if over == ErrExtendFailed {
		if errors.As(err, &vote) {
			gone.Nodes, _ = m.nodes.errors(vote)
		}
		if gone.Nodes == nil { // it was known to be lost before: no node has it
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

// ValidContext asks all nodes whether a quorum holds the lock. False comes with *ErrTaken, which names
// the nodes that do not, or with redlock.ErrNoQuorum or the error of ctx if too few nodes answered.
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
