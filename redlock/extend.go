package redlock

import "context"

// Extend asks all nodes to let the lock live for its full TTL from now on. A
// node counts only if it still held the lock, and a quorum only before the
// lock's present deadline; the new deadline counts from the start of the call.
// Extend returns within the node timeout, and does not disturb the renewals.
//
// Errors: ErrLost if the deadline has passed or a majority no longer holds the
// lock, which then has ended; ErrReleased or ErrClosed after Release or Close;
// ErrNoQuorum or ctx's error if too few nodes answered: the lock is still held
// until its old deadline, and asking again makes sense.
func (k *Lock) Extend(ctx context.Context) error {
	r, err := k.extension()
	if err != nil {
		return err
	}
	r.ask()
	r.wait(ctx, k.settings.timeout(), settled)
	k.learn(r)
	k.expire(k.settings.clock.Now())

	k.mu.Lock()
	defer k.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case k.phase != held:
		return k.ended()
	case k.proof >= r.seq:
		return nil
	case ctx.Err() != nil:
		return r.fail(ctx.Err())
	}
	return r.fail(ErrNoQuorum)
}

// extension makes a round that is to extend the lock, if it is held.
func (k *Lock) extension() (*round, error) {
	k.expire(k.settings.clock.Now())
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ended(); err != nil {
		return nil, err
	}
	return k.nextRound(), nil
}

// nextRound makes an extension. The lock must be locked.
func (k *Lock) nextRound() *round {
	r := k.locker.newRound(k.ctx, k.name, k.locker.request(k.settings, OpExtend, k.claim))
	k.seq++
	r.seq, r.lock = k.seq, k
	return r
}

// heard is called with every reply to an extension, and with those to the
// acquisition that come after the quorum.
func (k *Lock) heard(r *round, i int, reply Reply) {
	k.mu.Lock()
	repairing := k.repairs.has(i) // then an older reply does not say what is there
	switch {
	case reply.Outcome == Granted:
		k.maybe.add(i)
	case !repairing && (reply.Outcome == Refused || reply.Outcome == Failed && r.req.Op != OpExtend):
		k.maybe.remove(i)
	}
	k.mu.Unlock()
	k.learn(r)
	if r.req.Op == OpExtend && reply.Outcome == Refused && reply.TTL == 0 {
		k.repair(r, i)
	}
}

// learn draws the conclusions from a round's replies so far. It can be called
// at any time and as often as one likes.
func (k *Lock) learn(r *round) {
	k.mu.Lock()
	r.mu.Lock()
	t, granted := r.tally, r.nodes(Granted)
	var gone *QuorumError
	if r.req.Op == OpExtend && t.gone() && k.phase == held {
		gone = r.fail(ErrLost)
	}
	r.mu.Unlock()
	if k.phase != held {
		k.mu.Unlock()
		return
	}

	now := k.settings.clock.Now()
	renewed := false
	switch {
	case t.verdict() != voteWon || now >= k.until:
		// Undecided, or decided too late to be believed.
	case r.seq == k.proof:
		k.votes = granted | r.regained
	case r.seq > k.proof && k.deadline(r) >= k.until:
		k.proof, k.votes, k.until = r.seq, granted|r.regained, k.deadline(r)
		k.renewAt = r.start.Add(k.settings.ttl / 3)
		renewed = true
	}
	if r == k.renewal && (t.verdict() == voteWon || t.pending() == 0) {
		k.renewal = nil
		if !renewed {
			k.renewAt = now.Add(k.retryRenewal())
		}
		k.reschedule()
	}
	k.mu.Unlock()

	switch {
	case gone != nil:
		k.end(lost, gone, now)
	case renewed:
		k.locker.tell(Event{Kind: EventExtended, Context: k.ctx, Name: k.name}, r.start, k)
	}
}
