package redlock

import "slices"

// A lock with a weight is several permits of one name, bound together (see bond).
//
//	gate ──► permit ──► permit ──► ... each waited for, and kept ──► the gate is released ──► Lock
//	  ▲                                     │
//	  └─────────── all are released ◄───────┘ one was lost, or the gate
//
// Two callers with a part each of what they want would wait for each other for ever. So a name has a
// gate, an exclusive lock. Nobody who waits but the caller that has the gate holds a permit, and so it
// waits only for callers that have all they want. It never gives a permit back to wait for more, so
// callers with less cannot starve it.

// weigh makes of a name in each of its groups the permits that its weight is, behind the gates of all
// groups.
func (of *several) weigh() {
	var gates, permits []target
	for _, t := range of.each {
		permits = append(permits, slices.Repeat([]target{t}, t.settings.weight)...)
		t.isGate = true
		gates = append(gates, t)
	}
	of.each = append(gates, permits...)
}

// twin returns the permit in another group whose slot the target is to have in its own: the one that
// was taken a whole weight before. It is nil for the first group, and for other kinds of lock.
func (t target) twin(taken []*hold) *hold {
	if i := len(taken) - max(1, t.settings.weight); i >= 0 && taken[i].session.permit != nil {
		return taken[i]
	}
	return nil
}

// dropGates releases the first n holds, which are gates: with all permits there they serve no more. One
// that has ended before ends the bond. Else it would end the Lock, when it comes to end what it is bound to.
func (b *bond) dropGates(n int) {
	b.mu.Lock()
	gates := b.holds[:n]
	b.holds = b.holds[n:]
	b.mu.Unlock()
	for _, k := range gates {
		k.session.mu.Lock()
		k.life.bond = nil
		b.mu.Lock()
		b.endsWith(k)
		b.mu.Unlock()
		k.session.mu.Unlock()
		k.leave()
	}
}

// Permits returns which permits the lock is, in rising order: as many as its Weight, one without it. See
// Permit.
func (k *Lock) Permits() (permits []int) {
	for _, part := range k.holds() {
		if part.session.permit != nil {
			permits = append(permits, part.session.slot())
		}
	}
	if permits == nil {
		return []int{k.Permit()}
	}
	slices.Sort(permits)
	return permits
}
