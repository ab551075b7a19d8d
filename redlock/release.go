package redlock

import "context"

// Release gives the lock up. Its context ends at once, with cause ErrReleased;
// all nodes are asked to delete the key if it still holds the lock's value.
// Release returns when a quorum has confirmed that, and the rest goes on.
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
	k.expire()
	r, err := k.end(released, ErrReleased)
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

	e := Event{Kind: EventReleased, Name: k.name, Votes: votes}
	if failure != nil {
		e.Err = failure
	}
	k.locker.tell(e, k.start, nil)
	return e.Err
}

// release asks all nodes to delete key if it holds value. Those in maybe may
// hold it, and must not be let off before they are reached.
func (l *Locker) release(s *settings, name, key, value string, maybe nodeSet) *round {
	r := l.newRound(name, Request{Op: OpRelease, Key: key, Value: value, TTL: s.ttl, Timeout: s.timeout(), MayHold: true})
	if all := nodeSet(1)<<len(l.nodes) - 1; maybe != all {
		spare := r.req
		spare.MayHold = false
		r.spare, r.without = &spare, all&^maybe
	}
	l.inflight.add(len(l.nodes))
	r.ask()
	return r
}
