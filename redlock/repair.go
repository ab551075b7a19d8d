package redlock

// repair gives the lock back to node i, which has said that it has no such key:
// it was down when the lock was taken, or has forgotten. That adds to the
// lock's margin; it never counts for the extension that found the gap, since
// somebody else may have had the node in between.
//
// A lock that has ended must not come back. Whether it is held is looked at when
// the request's turn has come: a release is then either on its way before,
// and the lock is not held any more, or comes behind on the same connection.
func (k *Lock) repair(gap *round, i int) {
	k.mu.Lock()
	if k.phase != held || k.repairs.has(i) {
		k.mu.Unlock()
		return
	}
	k.repairs.add(i)
	k.maybe.add(i)
	k.mu.Unlock()

	l := k.locker
	plain := k.claim
	plain.counter = "" // the token was accepted by a majority; this is about the key
	r := l.newRound(k.ctx, k.name, l.request(k.settings, OpAcquire, plain))
	r.lock, r.gap = k, gap
	r.without = allNodes(len(l.nodes))
	r.without.remove(i)
	r.askIf(k.Valid)
}

// repaired is called with the reply.
func (k *Lock) repaired(gap *round, i int, o Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.repairs.remove(i)
	if o != Granted || k.phase != held {
		return
	}
	gap.regained.add(i)
	if gap.seq == k.proof {
		k.votes.add(i)
	}
}
