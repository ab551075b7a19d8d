package redlock

import "time"

// watch puts a new lock on the agenda; false means that the Locker is closed.
func (k *Lock) watch() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reschedule()
}

// reschedule tells the agenda when to look at the lock again: at its deadline,
// or before that for its renewal. The lock must be locked and held.
func (k *Lock) reschedule() bool {
	at := k.until
	switch {
	case k.renewal != nil:
		at = min(at, k.renewal.start.Add(k.settings.timeout()))
	case k.renews():
		at = min(at, k.renewAt)
	}
	return k.locker.agenda.put(k, at)
}

// renews reports whether another renewal would prolong the lock.
func (k *Lock) renews() bool {
	return k.settings.renew && (k.endBy == 0 || k.until < k.endBy)
}

// retryRenewal is how soon a renewal that came to nothing is tried again: some
// ten times within the two thirds of the TTL that are left.
func (k *Lock) retryRenewal() time.Duration { return max(k.settings.ttl/16, time.Millisecond) }

// due does what is due for the lock. It never waits for a node, so no I/O can
// hold up the deadline of this lock or another.
func (k *Lock) due() {
	k.mu.Lock()
	if k.phase != held {
		k.mu.Unlock()
		return
	}
	now := k.settings.clock.Now()
	if now >= k.until {
		k.mu.Unlock()
		k.expire(now)
		return
	}
	if k.renewal != nil && now >= k.renewal.start.Add(k.settings.timeout()) {
		k.renewal = nil // replies may still come and be learnt from
		k.renewAt = now.Add(k.retryRenewal())
	}
	var r *round
	if k.renewal == nil && k.renews() && now >= k.renewAt {
		r = k.nextRound()
		k.renewal = r
	}
	open := k.reschedule()
	k.mu.Unlock()
	switch {
	case !open:
		k.closeUp(now)
	case r != nil:
		r.ask()
	}
}
