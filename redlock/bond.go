package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/agenda"
	"github.com/redquorum/redquorum/redlock/internal/lease"
)

// A bond ties several holds together, which are one Lock to their caller: the first that ends ends all.
// It begins before the first of them, so that the acquisition learns what it has lost while it waits
// for the rest.
type bond struct {
	names  []string // of the Lock
	group  *group   // any of them: it tells the observers
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      lockorder.Mutex[lockorder.Bond]
	holds   []*hold       // guarded by mu until the Lock is complete
	since   clock.Instant // it is complete; zero: it is not, and no caller has the Lock
	until   clock.Instant // as observers have been told last
	isEnded bool
	cause   error // guarded by mu, as all above
}

// newBond returns a bond without holds. Its context has the values of the caller's.
func newBond(caller context.Context, g *group, names []string) *bond {
	b := &bond{names: names, group: g}
	b.ctx, b.cancel = context.WithCancelCause(context.WithoutCancel(caller))
	return b
}

// add binds k, with which the bond ends if k has ended. It reports whether all are held.
func (b *bond) add(k *hold) bool {
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	k.lived().bond = b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = append(b.holds, k)
	b.endsWith(k)
	return !b.isEnded
}

// endsWith ends a bond that is not complete if k has ended. Both must be locked.
func (b *bond) endsWith(k *hold) {
	if k.phase != lease.Held && !b.isEnded {
		b.isEnded, b.cause = true, errPartLost
	}
}

// complete says that the holds are a Lock from now on, and returns it. It is nil if one has ended.
func (b *bond) complete(first *Lock, now clock.Instant) *Lock {
	until := deadline(b.holds)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isEnded || until <= now {
		return nil
	}
	b.since, b.until, first.bond = now, until, b
	return first
}

// end ends all holds, because one has ended for that reason, or the caller has released the Lock. of
// is how a loss came about. It reports false if they had ended before.
func (b *bond) end(why lease.Reason, of *ending) bool {
	cause := ErrReleased
	switch {
	case why == lease.Closed:
		cause = ErrClosed
	case why.IsLoss():
		why, cause = lease.Along, of.cause
	}
	b.mu.Lock()
	isFirst := !b.isEnded
	if isFirst {
		b.isEnded, b.cause = true, cause
	}
	cause = b.cause
	holds, since := b.holds, b.since
	b.mu.Unlock()
	// Also if another does so: no name must be another's before the context has ended.
	b.cancel(cause)
	if !isFirst || why == lease.Released { // then each is left by the caller
		return isFirst
	}
	for _, k := range holds {
		if before, last, _ := k.end(why, of); before == lease.Held {
			k.endContext()
			if last {
				k.session.group.agenda.Add(k.session, agenda.GiveBack)
			}
		}
	}
	if since > 0 {
		b.tellEnd(why, of)
	}
	return true
}

// deadline returns until when all are held, zero if one is not.
func deadline(holds []*hold) clock.Instant {
	until := holds[0].deadline()
	for _, k := range holds[1:] {
		until = min(until, k.deadline())
	}
	return until
}

// remaining returns for how long all are held.
func remaining(holds []*hold) time.Duration {
	return max(0, deadline(holds).Sub(holds[0].session.now()))
}

// votes returns the fewest nodes that have one of them.
func votes(holds []*hold) int {
	n := holds[0].votes()
	for _, k := range holds[1:] {
		n = min(n, k.votes())
	}
	return n
}

// tellExtended tells the observers if the Lock lives for longer, now that an extension of one of its holds
// has succeeded that began at since.
func (b *bond) tellExtended(since clock.Instant) {
	b.mu.Lock()
	isComplete, holds := b.since > 0, b.holds
	b.mu.Unlock()
	if !isComplete || !b.group.observed() {
		return
	}
	until := deadline(holds)
	b.mu.Lock()
	grew := until > b.until
	b.until = max(b.until, until)
	b.mu.Unlock()
	if grew {
		b.tell(Event{Kind: EventExtended, Votes: votes(holds), Remaining: remaining(holds)}, since)
	}
}

// tellEnd tells the observers of an end that the caller has not brought about.
func (b *bond) tellEnd(why lease.Reason, of *ending) {
	k, g := b.holds[0], b.group
	switch {
	case !g.observed():
	case why.IsLoss():
		e := k.session.describe(k.lossEvent(of))
		e.Name, e.Elapsed = textOf(b.names), of.at.Sub(b.since)
		g.publish(e)
	default:
		b.tell(Event{Kind: EventReleased, Err: ErrClosed}, b.since)
	}
}

// tell completes an event of the Lock that began at since, and publishes it.
func (b *bond) tell(e Event, since clock.Instant) {
	k := b.holds[0]
	e.Context, e.Name = k.caller, textOf(b.names)
	b.group.tell(k.session.describe(e), since, nil)
}

// giveBack releases the holds of a Lock that is not complete.
func (b *bond) giveBack() {
	for _, k := range b.holds {
		k.leave()
	}
}

// release releases the Lock.
func (b *bond) release(ctx context.Context) error {
	for _, k := range b.holds { // a loss that is due is one
		k.session.expire()
	}
	if !b.end(lease.Released, nil) {
		return b.leaveEnded()
	}
	farewells := make([]farewell, len(b.holds))
	for i, k := range b.holds {
		farewells[i] = k.leave()
	}
	votes := len(b.group.nodes)
	var failure error
	for i, k := range b.holds {
		n, err := farewells[i].await(ctx, k.settings.timeout())
		votes = min(votes, n)
		if failure == nil || errors.Is(err, ErrLost) {
			failure = err
		}
	}
	b.tell(Event{Kind: EventReleased, Votes: votes, Err: failure}, b.since)
	return failure
}

// leaveEnded returns why the Lock had ended. What was lost is on its way to being released then: the
// caller may want it anew.
func (b *bond) leaveEnded() error {
	b.mu.Lock()
	cause := b.cause
	b.mu.Unlock()
	if !errors.Is(cause, ErrLost) {
		return fmt.Errorf("redlock: %q: %w", textOf(b.names), cause)
	}
	for _, k := range b.holds {
		k.leave()
	}
	return cause
}
