package lease

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Terms are what many leases have in common.
type Terms struct {
	Nodes    int
	TTL      time.Duration
	Timeout  time.Duration // of a request to a node
	Hinting  quorum.Set    // nodes that hint when a key changes
	MayWatch func() bool   // whether there is room for another key to be hinted at
	Jitter   func(limit time.Duration) time.Duration
}

// A Grant is what a Lease begins with.
type Grant struct {
	Round    Round         // that a quorum has granted
	IsReader bool          // it is a reader's: nodes keep many of those, and hint at none
	Extends  bool          // the Round has extended a claim that was there before
	Within   *atomic.Int64 // the instant at which the Lease ends at the latest; it may change. Nil: none
}

// A Tenure is the time for which one caller has a Lease.
type Tenure struct {
	Since clock.Instant // the request that got it began, or it was handed over
	EndBy clock.Instant // it ends then, however often it is extended; zero for never
}

// A Round is a request to all nodes about the claim.
type Round interface {
	Start() clock.Instant
	Votes() Votes // so far
	Mark() *Mark
}

// Votes are the answers to a Round.
type Votes struct {
	Granted quorum.Set
	Tally   quorum.Tally
}

// A Mark is what a Lease notes about a Round.
type Mark struct {
	regained quorum.Set // nodes that were given the claim again since
	seq      int32      // of the rounds of a Lease; zero: that of its Grant
	extends  bool
	reader   bool // it is a reader's
}

// A Reason is why a Lease is not held.
type Reason uint8

const (
	Held     Reason = iota // it is
	Released               // by its holder
	Closed                 // by the end of its Locker
	Along                  // with something else that it depends on, as its owner says
	Overdue                // no extension came before the deadline
	MaxHold                // its holder had it for as long as it may
	Absent                 // what it is held under has ended (Grant.Within)
	Gone                   // a majority does not hold it, by the answers to an extension
	Missing                // a majority does not hold it, by what looks have told
)

// IsLoss reports whether the holder did not want the end.
func (r Reason) IsLoss() bool { return r >= Along }

// A Todo is what follows an event. The zero Todo is nothing.
type Todo struct {
	At       clock.Instant // Due is to be called then; zero: at the moment of before
	End      Reason        // the Lease has ended: not Held
	Failed   Round         // with End: the extension to explain it by; nil: there is none
	Extended bool          // by the Round of the event
	Renew    bool          // WantsRenewal is to be called, when its turn comes
	Look     bool          // Looking is to be called, when its turn comes
	Repair   bool          // the node of the event is to be given the claim again; then call Repaired
}

// A Lease is one claim that a quorum of nodes has granted.
type Lease struct {
	terms  *Terms
	within *atomic.Int64
	tenure *Tenure // nil while it is handed over, and stays when it has ended

	ended    Reason
	renews   bool // whoever has the tenure wants it
	renewDue bool // WantsRenewal is to be called
	lookDue  bool // Looking is to be called
	watched  bool // nodes have been asked to hint at its keys
	reader   bool

	until      clock.Instant // not held from here on, whatever else there is (see Deadline)
	votes      quorum.Set    // nodes that granted in round proof
	maybe      quorum.Set    // nodes that may hold the claim
	before     quorum.Set    // votes and until of the round that proof has replaced
	beforeEnd  clock.Instant
	proof      int32 // the round that until is counted from
	seq        int32 // of the last round
	renewal    Round // under way, or nil
	renewAt    clock.Instant
	divergence *divergence // nil: all has been well
}

// A divergence is what is known where not all has been well: how the nodes differ.
type divergence struct {
	failed  Round       // the last extension that came to nothing, nil after one that succeeded
	repairs quorum.Set  // nodes that are being asked to hold the claim again
	keys    []keyExpiry // at the nodes; nil while votes and before tell all (see keyExpiries)
	watch   watch
}

// New returns the Lease of a claim that was just granted. It is for Occupy to say for whom, and for
// Granted by which nodes.
func New(t *Terms, g Grant) Lease {
	start := g.Round.Start()
	*g.Round.Mark() = Mark{extends: g.Extends, reader: g.IsReader}
	return Lease{
		terms: t, within: g.Within, reader: g.IsReader,
		until: quorum.Deadline(start, t.TTL), renewAt: t.renewAfter(start),
	}
}

// Granted notes which nodes have granted the claim, and which may have done so.
func (l *Lease) Granted(granted, maybe quorum.Set) { l.votes, l.maybe = granted, l.maybe|maybe }

// Occupy gives the Lease to a caller, who wants it renewed or not. The Tenure is read until the Lease
// has another.
func (l *Lease) Occupy(t *Tenure, renews bool, now clock.Instant) Todo {
	l.tenure, l.renews = t, renews
	l.renewForAbsent(now) // what looks have told while nobody had it
	return l.Plan()
}

// Vacate leaves the Lease to nobody, until Occupy.
func (l *Lease) Vacate() { l.tenure = nil }

// Ended returns why it is not held, Held if it is. A Lease whose deadline has passed is held until Due
// says otherwise: see IsValid.
func (l *Lease) Ended() Reason { return l.ended }

// IsValid reports whether it is held at this moment.
func (l *Lease) IsValid(now clock.Instant) bool { return l.ended == Held && now < l.Deadline() }

// IsWithin reports whether the Lease ends at that instant at the latest. It is safe at any time.
func (l *Lease) IsWithin(instant *atomic.Int64) bool { return l.within == instant }

// Until is the deadline that the nodes' votes make.
func (l *Lease) Until() clock.Instant { return l.until }

// Deadline is when it ends, if nothing extends it.
func (l *Lease) Deadline() clock.Instant {
	end := l.until
	if l.within != nil {
		end = min(end, clock.Instant(l.within.Load()))
	}
	if l.tenure != nil && l.tenure.EndBy > 0 {
		end = min(end, l.tenure.EndBy)
	}
	return end
}

// Votes returns the nodes that hold the claim, as far as is known.
func (l *Lease) Votes() quorum.Set { return l.votes }

// Maybe returns the nodes that may hold it. It matters when the Lease has ended: the others need no
// more than to hear of the release.
func (l *Lease) Maybe() quorum.Set { return l.maybe }

// MayHold adds nodes of which the caller knows that they may hold the claim.
func (l *Lease) MayHold(nodes quorum.Set) { l.maybe |= nodes }

// End ends the Lease, for a reason that is not its own. It reports false if it had ended before.
func (l *Lease) End(why Reason) bool {
	if l.ended != Held {
		return false
	}
	l.end(why, nil)
	return true
}

// end is the only way in which a Lease ends.
func (l *Lease) end(why Reason, failed Round) Todo {
	l.ended, l.votes, l.before, l.renewal = why, 0, 0, nil
	if l.divergence != nil {
		l.divergence.failed = nil
	}
	return Todo{End: why, Failed: failed}
}

// Expire ends the Lease if its deadline has passed.
func (l *Lease) Expire(now clock.Instant) Todo {
	if l.ended != Held || now < l.Deadline() {
		return Todo{}
	}
	failed := l.failed()
	if failed == nil {
		failed = l.renewal
	}
	switch t := l.tenure; {
	case l.within != nil && now >= clock.Instant(l.within.Load()):
		return l.end(Absent, nil)
	case t != nil && t.EndBy > 0 && now >= t.EndBy:
		return l.end(MaxHold, nil)
	}
	return l.end(Overdue, failed)
}

// Due is called at the moment that a Todo has named.
func (l *Lease) Due(now clock.Instant) Todo {
	if todo := l.Expire(now); l.ended != Held {
		return todo
	}
	if l.renewal != nil && now >= l.renewal.Start().Add(l.terms.Timeout) {
		l.renewalFailed(l.renewal, now) // answers may still come and be learnt from
	}
	renew := l.renewal == nil && !l.renewDue && l.isRenewed() && now >= l.renewAt
	l.renewDue = l.renewDue || renew
	look := false
	if at := l.lookAt(); !renew && at > 0 && now >= at {
		look, l.lookDue = true, true
	}
	todo := l.Plan()
	todo.Renew, todo.Look = renew, look
	return todo
}

// Plan says when Due is to be called: at the deadline, or before that for a renewal, for one that came
// to nothing, or for a look.
func (l *Lease) Plan() Todo {
	if l.ended != Held {
		return Todo{}
	}
	at := l.Deadline()
	switch {
	case l.renewal != nil:
		at = min(at, l.renewal.Start().Add(l.terms.Timeout))
	case l.isRenewed() && !l.renewDue:
		at = min(at, l.renewAt)
	}
	if look := l.lookAt(); look > 0 {
		at = min(at, look)
	}
	return Todo{At: at}
}

// ensureDivergence returns the divergence to be changed, creating it on the first call.
func (l *Lease) ensureDivergence() *divergence {
	if l.divergence == nil {
		l.divergence = &divergence{}
	}
	return l.divergence
}

// failed returns the last extension that came to nothing, nil after one that succeeded.
func (l *Lease) failed() Round {
	if l.divergence == nil {
		return nil
	}
	return l.divergence.failed
}
