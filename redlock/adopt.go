package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// A process other than the holder can adopt or release a lock by its name and value: a daemon that
// was restarted, a worker that got a job from a queue, or an operator after a holder has died. Only
// the value counts, so the lock of a later holder is safe. If the value of a lock was returned by
// Lock.Value, or adopted, the lock is not handed over within its process. internal/core/claim.go
// describes the attempt of an adoption.

// ReleaseValue releases the lock name if it holds value: its holder's Lock.Value, or a value from
// Inspect. It works in any process. If the holder lives, stop it first: it notices the loss within
// milliseconds, or at its next renewal if servers send no hints, and keeps working up to that
// point. A value from Lock.Value releases only that lock. A value from Inspect releases the lock of
// the process, which may have been handed over to another caller since.
//
// ReleaseValue cannot release readers (Shared), and returns ErrLost for them; adopt them instead.
//
// The error is ErrLost if a majority of nodes no longer holds the value, and ErrClosed after Close.
// It is ErrNoQuorum or ctx's error if too few nodes confirmed the release, which then continues in
// the background for at most the Locker's TTL. ctx limits only the wait. ReleaseValue returns
// within the node timeout, and is safe for concurrent use.
func (l *Locker) ReleaseValue(ctx context.Context, name, value string) error {
	c, err := l.about(ctx, protocol.OpRelease, name)
	if err != nil {
		return err
	}
	if err := checkValue(value); err != nil {
		return err
	}
	defer l.awaitObservers()
	p, of, key := l.placeOf(name), &l.settings, l.settings.prefix+name
	poll := p.engine.Ask(protocol.Request{
		Op: protocol.OpRelease, Key: key, Value: value, TTL: of.TTL, Timeout: of.Timeout, MayHold: true,
	}, c)
	defer p.engine.Changed(key)
	poll.Wait(ctx, engine.Decided)
	return p.unmet(ctx, name, poll, ErrLost)
}

// checkValue returns the reason a value cannot be the value of a lock, or nil.
func checkValue(value string) error {
	switch value {
	case "":
		return errors.New("redlock: the value is empty: pass the value from Lock.Value")
	case protocol.ReadersValue: // otherwise a writer could join them
		return fmt.Errorf("redlock: %q stands for all readers, and is not the value of a lock: pass the value from Lock.Value", value)
	}
	return nil
}

// Adopt takes over the lock name from another process, or from an earlier run of this program.
// value is its Lock.Value, which the nodes must still hold: a lock that is gone is not acquired
// again. The result is a Lock as from Acquire, held for the TTL less Drift(TTL), counted from the
// start of the call.
//
// The holder must be gone permanently without having released the lock: its process died, or exited
// without Close. A holder that lives, or was only paused, continues to work, and its release ends
// the adopter's lock. Do not adopt a released lock, because the release may still be in transit.
//
// The options define the kind of the lock, as for Acquire:
//
//   - An exclusive lock, even one with Fenced. Lock.Fence is zero; the caller continues with the
//     old token, and later locks get greater ones.
//   - Shared: the lock of a reader. If several readers share a value, each of them can be adopted
//     by that value. The lock of a writer becomes the lock of a reader (see Lock.Downgrade).
//   - Permits(k): a permit, found by the value.
//
// A lock of several names, or with a Weight above 1, cannot be adopted as a whole, because it has a
// value for each name or permit. A lock that this Locker holds cannot be adopted either, except the
// lock of a reader by the value that its readers share. Fenced and Owner have no effect. If the
// holder's TTL was longer, it stays on the nodes until the release.
//
// The error is ErrLost if a majority of nodes no longer holds the value, and ErrClosed after Close.
// It is ErrNoQuorum or ctx's error if too few nodes answered; the call can then be repeated. Adopt
// takes one to five round trips: more than one for a permit, or if a node's record must be read or
// changed. Each round trip takes at most the node timeout. Observers see an acquisition. Adopt is
// safe for concurrent use.
func (l *Locker) Adopt(ctx context.Context, name, value string, opts ...Option) (*Lock, error) {
	if err := checkValue(value); err != nil {
		return nil, err
	}
	return l.acquire(ctx, &call{name: name, isTry: true}, slices.Concat(opts, []Option{adopted(value)}))
}

// adopted sets the label from the value, and no token, because the holder's token is unknown.
func adopted(value string) Option {
	return Option{apply: func(s *settings) error {
		if s.weight > 1 {
			return refuse("Weight", s.weight, "a lock of several permits has a value for each and cannot be adopted as a whole: pass Weight(1) to adopt one of them")
		}
		s.Adopts, s.Fenced, s.Owner = value, false, HolderOf(value).Owner
		return nil
	}}
}
