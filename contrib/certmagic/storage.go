package redlockcertmagic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/redquorum/redquorum/redlock"
)

// Prefix is the start of the name of each lock. It follows the prefix of the Locker
// (redlock.Prefix).
const Prefix = "certmagic:"

// A Storage stores data in another storage and takes its locks from a redlock.Locker. It is safe
// for concurrent use.
type Storage struct {
	certmagic.Storage
	locker *redlock.Locker
	opts   []redlock.Option

	mu  sync.Mutex
	ops map[string]*operation // operations of this process, by the name passed by certmagic
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// An operation is the work of certmagic under a lock, from Lock to Unlock.
type operation struct {
	over chan struct{}
	lock *redlock.Lock // guarded by Storage.mu; nil until acquired
}

// New returns a Storage that stores in inner. The options apply to the locks; Exclusive is always
// set. New returns an error for an invalid argument, and sends nothing to the servers. The caller
// still owns the Locker, and closes it after certmagic has stopped.
func New(inner certmagic.Storage, locker *redlock.Locker, opts ...redlock.Option) (*Storage, error) {
	switch {
	case inner == nil:
		return nil, errors.New("redlockcertmagic: the storage is nil: pass the storage of the certificates")
	case locker == nil:
		return nil, errors.New("redlockcertmagic: the redlock.Locker is nil: make one with redlock.New")
	}
	s := &Storage{Storage: inner, locker: locker, ops: map[string]*operation{}}
	s.opts = append(append(s.opts, opts...), redlock.Exclusive())
	if err := locker.Check(s.opts...); err != nil {
		return nil, fmt.Errorf("redlockcertmagic: %w", err)
	}
	return s, nil
}

// String returns the name of the storage for certmagic's log.
func (s *Storage) String() string { return fmt.Sprintf("redquorum:%v", s.Storage) }

// Lock implements certmagic.Locker. It waits for the lock like redlock.Locker.Acquire, and for an
// operation of this process under the same name. The error is redlock.ErrNoQuorum if an outage
// exceeds redlock.Patience, redlock.ErrClosed, or the error of ctx.
func (s *Storage) Lock(ctx context.Context, name string) error {
	op := &operation{over: make(chan struct{})}
	for {
		before := s.begin(name, op)
		if before == nil {
			break
		}
		select {
		case <-before.over:
		case <-ctx.Done():
			return fmt.Errorf("redlockcertmagic: lock %q: %w", name, ctx.Err())
		}
	}
	return s.acquire(ctx, name, op, s.locker.Acquire)
}

// TryLock implements certmagic.TryLocker. It tries once, and returns false without an error if
// another holder has the lock. The errors are the same as for Lock.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	op := &operation{over: make(chan struct{})}
	if s.begin(name, op) != nil {
		return false, nil
	}
	err := s.acquire(ctx, name, op, s.locker.TryAcquire)
	if errors.Is(err, redlock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// begin makes op the current operation under its name, or returns the current one if there is one.
// A lost lock does not end its operation, because otherwise its Unlock would end the next
// operation.
func (s *Storage) begin(name string, op *operation) *operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.ops[name]; before != nil {
		return before
	}
	s.ops[name] = op
	return nil
}

type acquisition func(context.Context, string, ...redlock.Option) (*redlock.Lock, error)

// acquire acquires the lock of op. On failure it ends op.
func (s *Storage) acquire(ctx context.Context, name string, op *operation, ask acquisition) error {
	lock, err := ask(ctx, Prefix+name, s.opts...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.ops, name)
		close(op.over)
		return fmt.Errorf("redlockcertmagic: %w", err)
	}
	op.lock = lock
	return nil
}

// Unlock implements certmagic.Locker. It releases the lock even if ctx has ended; ctx limits only
// the wait for confirmation. Unlock does nothing if the name is not locked.
//
// The error is redlock.ErrLost or redlock.ErrClosed if the lock ended before, so that another
// instance may have worked at the same time. It is redlock.ErrNoQuorum or the error of ctx if too
// few servers have confirmed the release, which then continues in the background. The contract of
// certmagic.Locker has an error only for a lock that could not be released, and none for a lost
// lock; certmagic logs both.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	op, lock := s.locked(name, true)
	if lock == nil {
		return nil
	}
	defer close(op.over)
	if err := lock.Release(ctx); err != nil {
		return fmt.Errorf("redlockcertmagic: %w", err)
	}
	return nil
}

// locked returns the operation under a name and its lock, or nil without an operation. If end is
// true, it also ends the operation.
func (s *Storage) locked(name string, end bool) (*operation, *redlock.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.ops[name]
	if op == nil || op.lock == nil {
		return nil, nil
	}
	if end {
		delete(s.ops, name)
	}
	return op, op.lock
}

// RenewLockLease implements certmagic.LockLeaseRenewer. If it returns nil, the lock is held at this
// moment, and is renewed until Unlock; the duration is ignored. A lost lock is requested again,
// once. The error is redlock.ErrReleased if the name is not locked here, redlock.ErrHeld if another
// instance has the lock by now, or an error of Lock.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	op, lock := s.locked(name, false)
	switch {
	case lock == nil:
		return fmt.Errorf("redlockcertmagic: renew %q: %w", name, redlock.ErrReleased)
	case lock.Valid():
		return nil
	}
	lock, err := s.locker.TryAcquire(ctx, Prefix+name, s.opts...)
	if err != nil {
		return fmt.Errorf("redlockcertmagic: renew %q, which was lost: %w", name, err)
	}
	s.mu.Lock()
	if s.ops[name] == op && !op.lock.Valid() {
		op.lock, lock = lock, nil
	}
	s.mu.Unlock()
	if lock != nil { // unlocked in the meantime
		lock.Release(ctx)
		return fmt.Errorf("redlockcertmagic: renew %q: %w", name, redlock.ErrReleased)
	}
	return nil
}
