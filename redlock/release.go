package redlock

import (
	"context"

	"github.com/redquorum/redquorum/clock"
)

// Release gives the lock up. Its context ends at once, with cause ErrReleased;
// all nodes are asked to delete the key if it still holds the lock's value.
// Release returns when a quorum has confirmed that, and the rest goes on. If
// another caller of the Locker waits for such a lock, it gets this one instead,
// and Release returns at once.
//
// The requests do not depend on ctx, which bounds the waiting only, so it is
// right to pass a context that has ended. Release returns within the node
// timeout.
//
// Errors: ErrLost if the lock was no longer held (work may have run
// unprotected); ErrReleased if it was released before, ErrClosed if the Locker's
// Close did it; ErrNoQuorum or ctx's error if too few nodes confirmed: the
// release goes on in the background, and the key expires within the TTL. Safe
// for concurrent use.
func (k *Lock) Release(ctx context.Context) error {
	now := k.settings.clock.Now()
	k.expire(now)
	if k.handOver(now) {
		return nil
	}
	r, err := k.end(released, ErrReleased, now)
	if err != nil {
		return err
	}
	r.wait(ctx, k.settings.timeout(), settled)

	r.mu.Lock()
	var failure *QuorumError
	if t := r.tally; t.verdict() != voteWon {
		kind := ErrNoQuorum
		switch {
		case t.gone():
			kind = ErrLost
		case ctx.Err() != nil:
			kind = ctx.Err()
		}
		failure = r.fail(kind)
	}
	votes := r.tally.granted
	r.mu.Unlock()

	e := Event{Kind: EventReleased, Context: k.ctx, Name: k.name, Votes: votes}
	if failure != nil {
		e.Err = failure
	}
	k.locker.tell(e, k.start, nil)
	return e.Err
}

// closeUp releases the lock for a Close.
func (k *Lock) closeUp(now clock.Instant) {
	if _, err := k.end(released, ErrClosed, now); err == nil {
		k.locker.tell(Event{Kind: EventReleased, Context: k.ctx, Name: k.name, Err: ErrClosed}, k.start, nil)
	}
}

// release asks all nodes to forget the claim. Those in maybe may hold it, and
// must not be let off before they are reached.
func (l *Locker) release(told context.Context, now clock.Instant, s *settings, c claim, maybe nodeSet) *round {
	r := l.newRoundAt(told, now, c.name, l.request(s, OpRelease, c))
	if all := allNodes(len(l.nodes)); maybe != all {
		// A node that holds nothing has no late acquisition to be kept from
		// either, and the counter of tokens there may be what others are
		// settling theirs by.
		c.counter = ""
		spare := l.request(s, OpRelease, c)
		spare.MayHold = false
		r.spare, r.without = &spare, all&^maybe
	}
	l.inflight.add()
	r.ask()
	return r
}
