package redlock

import (
	"context"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
)

// Leftovers returns how many locks and names the Locker still knows of, and
// how many replies Close would wait for.
func (l *Locker) Leftovers() (scheduled, queued, inflight int) {
	l.groups[0].queue.mu.Lock()
	defer l.groups[0].queue.mu.Unlock()
	scheduled, _ = l.groups[0].agenda.Len()
	return scheduled, len(l.groups[0].queue.lines) - l.groups[0].queue.idle.size, int(l.groups[0].inflight.n.Load() &^ isClosed)
}

// HoldsLate does what an acquisition does last, as if the lock had ended before.
func (l *Locker) HoldsLate(k *Lock) { l.groups[0].queue.hold(k.session) }

// ObserverOf returns the observer that the option makes.
func ObserverOf(o LockerOption) Observer {
	var s settings
	if err := o.applyToLocker(&s); err != nil {
		panic(err)
	}
	return s.observers[0]
}

// ParkedVotes returns how many votes wait for a node's record.
func ParkedVotes(l *Locker) int { return l.groups[0].guard.Waiting() }

// BeforeItsContextEnds has f run when the lock's context is about to end. queueFree
// tells whether other callers of the Locker can go on meanwhile.
func (k *Lock) BeforeItsContextEnds(f func(queueFree bool)) {
	k.Context()
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	end := k.life.end
	k.life.end = func(cause error) {
		free := k.session.group.queue.mu.TryLock()
		if free {
			k.session.group.queue.mu.Unlock()
		}
		f(free)
		end(cause)
	}
}

// FirstOf returns the node that all contenders for a key ask first.
func FirstOf(nodes []protocol.Node, key string) int { return ballot.First(nodes, key, 0) }

// WatchesOf returns how many nodes are to hint at changes of locks, and how many keys the
// Locker's locks have that are watched.
func WatchesOf(l *Locker) (nodes, keys int) {
	l.groups[0].watches.mu.Lock()
	defer l.groups[0].watches.mu.Unlock()
	return len(l.groups[0].watches.stops), int(l.groups[0].watches.keys.Load())
}

// ExtendsLate makes an extension of k that is to be sent later, by the function that it returns.
func ExtendsLate(k *Lock) (send func()) {
	r, err := k.extension()
	if err != nil {
		panic(err)
	}
	return r.ask
}

// SetMaxWatched changes how many keys the Locker has watched at most.
func SetMaxWatched(l *Locker, keys int64) { l.groups[0].watches.limit = keys }

// VoteOnce is TryAcquire, but a vote that was split is not tried again.
func (l *Locker) VoteOnce(ctx context.Context, name string) (*Lock, error) {
	a, err := l.groups[0].begin(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	k, err := a.kind().try(a, wholeVote)
	if err == nil {
		l.groups[0].queue.hold(k.session)
	}
	return k, err
}
