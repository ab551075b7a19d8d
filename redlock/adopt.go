package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

// Another process than the one that took a lock can adopt or release it by its name and value: a
// daemon that was restarted, a worker that got a job from a queue, or an operator after a holder has
// died. Only the value counts, so a lock that another process has by now is safe. A lock whose value was
// given out by Lock.Value, or adopted, is not handed over within its process either. How an adoption votes
// is in internal/core/adopt.go.

// ReleaseValue releases the lock name wherever it holds value: its holder's Lock.Value, or what
// Inspect returned. It works from any process. If the holder lives, stop it first: it learns of the
// loss within milliseconds, or at its next renewal if servers give no hints, and works on until
// then. A value of Lock.Value frees that lock and no other. A value of Inspect frees the lock of the
// process: its callers may have handed the lock over to each other since.
//
// It cannot release readers (Shared), and returns ErrLost for them; adopt them instead.
//
// Errors: ErrLost if a majority of nodes no longer holds the value; ErrNoQuorum or ctx's error if
// too few nodes confirmed. Then the release goes on in the background, for the Locker's TTL at
// most. ErrClosed after Close. ctx bounds the waiting only. ReleaseValue returns within the node
// timeout, and is safe for concurrent use.
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

// checkValue returns why a value is that of no lock, or nil.
func checkValue(value string) error {
	switch value {
	case "":
		return errors.New("redlock: the value is empty; give that of Lock.Value")
	case protocol.ReadersValue: // without it a writer would come in beside them
		return fmt.Errorf("redlock: %q stands for all readers, and is the value of no lock; give that of Lock.Value", value)
	}
	return nil
}

// Adopt takes over the lock name from another process, or from an earlier life of this one. value
// is its Lock.Value, which the nodes must still hold: a lock that is gone is not made anew. The
// result is a Lock like those of Acquire, held for the TTL less Drift(TTL) from before the call.
//
// The holder must be gone for good without having released the lock: its process died, or exited
// without Close. A holder that lives or was only paused works on, and its release ends the
// adopter's lock. Do not adopt a lock that was released, because the release may still be on its
// way.
//
// The options tell the kind of the lock, as for Acquire:
//
//   - An exclusive lock, also one with Fenced. Lock.Fence is zero; the caller goes on with the old
//     token, and later locks get greater ones.
//   - Shared: a reader's. Readers that shared a value can each be adopted by it. A writer's lock
//     becomes a reader's (see Lock.Downgrade).
//   - Permits(k): a permit, found by the value.
//
// A lock of several names, or with a Weight above 1, cannot be adopted as a whole, because it has a
// value for each. A lock that this Locker holds cannot be adopted either, except a reader's by the
// value that its readers share. Fenced and Owner have no effect. A longer TTL of the holder stays on
// the nodes until the release.
//
// Errors: ErrLost if a majority of nodes no longer holds the value; ErrNoQuorum or ctx's error if
// too few nodes answered, and asking again makes sense; ErrClosed after Close. Adopt takes one to
// five round trips: more for a permit, or if a node's record must be read or changed. Each waits
// for the node timeout at most. Observers see an acquisition. Adopt is safe for concurrent use.
func (l *Locker) Adopt(ctx context.Context, name, value string, opts ...Option) (*Lock, error) {
	if err := checkValue(value); err != nil {
		return nil, err
	}
	return l.acquire(ctx, &call{name: name, isTry: true}, slices.Concat(opts, []Option{adopted(value)}))
}

// adopted gives the settings the label of the value, and no token, because that of the holder is not known.
func adopted(value string) Option {
	return Option{apply: func(s *settings) error {
		if s.weight > 1 {
			return fmt.Errorf("Weight(%d): a lock of several permits has a value for each and cannot be adopted as a whole; give Weight(1) to adopt one of them", s.weight)
		}
		s.Adopts, s.Fenced, s.Owner = value, false, HolderOf(value).Owner
		return nil
	}}
}
