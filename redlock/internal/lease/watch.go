package lease

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A lease that is held for a while is watched: nodes that can hint when its
// key changes, so that a loss is told within milliseconds and not at the next renewal.
//
// A hint proves nothing. A look follows, at the node that gave it, which
// tells whether the node still holds the value, and has the node hint at the next change.
// A majority that does not ends the lease. A minority whose key has gone moves the
// next renewal forward, which gives the claim back to it (see Todo.Repair).
//
// Nothing is sent for leases that end sooner than watchAfter, and nothing
// but a flag with each extension of the others.
const (
	watchAfter = 50 * time.Millisecond

	// minWatchedTTL: a shorter lease is renewed, or ends, almost as soon as a hint
	// could tell of its loss.
	minWatchedTTL = time.Second

	// firstLookGap is how long after a look that a hint led to the next follows at least. Each such
	// look doubles the gap, up to a quarter of the TTL, unless it comes after quietGaps: so a server
	// that hints all the time, because its table of tracked keys is full for instance, costs about as
	// many looks as renewals.
	firstLookGap = 2 * time.Millisecond
	quietGaps    = 16

	// repairDelay is how soon the claim is given back to a node whose key has gone. The
	// delay lets the hints of nodes that lose their keys together come first: if they
	// are a majority, the lease is lost.
	repairDelay = 20 * time.Millisecond
)

// A watch is what hints and looks have told.
type watch struct {
	due     quorum.Set // nodes to be looked at
	at      clock.Instant
	last    clock.Instant // the last look at nodes that were due
	gap     time.Duration
	missing quorum.Set             // nodes that do not hold the claim, as they said themselves
	absent  quorum.Set             // of those, the ones without any key since the last extension was sent
	replies map[int]protocol.Reply // of missing
}

// IsWatched reports whether it is held, and nodes have been asked to hint at its keys.
func (l *Lease) IsWatched() bool { return l.ended == Held && l.watched }

// WasWatched is IsWatched, also for one that has ended.
func (l *Lease) WasWatched() bool { return l.watched }

// lookAt is when a look is due, zero for never.
func (l *Lease) lookAt() clock.Instant {
	t := l.terms
	switch {
	case l.lookDue || l.tenure == nil || l.reader || t.Hinting == 0 || t.TTL < minWatchedTTL:
		return 0
	case !l.watched && !t.MayWatch():
		return 0
	case !l.watched:
		return l.tenure.Since.Add(watchAfter)
	case l.divergence == nil || l.divergence.watch.due == 0:
		return 0
	}
	return l.divergence.watch.at
}

// Looking is called when the turn of a look that was due has come. It returns the nodes to ask whether
// they hold the claim, the first time all that can hint.
func (l *Lease) Looking(now clock.Instant) (nodes quorum.Set, first bool, todo Todo) {
	l.lookDue = false
	if l.ended != Held || l.reader {
		return 0, false, Todo{}
	}
	first = !l.watched
	switch {
	case first && l.terms.MayWatch():
		l.watched, nodes = true, l.terms.Hinting
	case !first && l.divergence != nil:
		nodes = l.divergence.watch.take(now, l.terms.TTL/4)
	}
	return nodes, first && l.watched, l.Plan()
}

// take returns the nodes that are due.
func (w *watch) take(now clock.Instant, maxGap time.Duration) quorum.Set {
	nodes := w.due
	w.due = 0
	if w.last > 0 && now < w.last.Add(quietGaps*w.gap) {
		w.gap = min(2*w.gap, maxGap)
	} else {
		w.gap = firstLookGap
	}
	w.last = now
	return nodes
}

// schedule has node i looked at as soon as the gap allows.
func (w *watch) schedule(i int, now clock.Instant) {
	w.due.Add(i)
	w.at = max(now, w.last.Add(w.gap))
}

// Hinted has node i looked at soon: a key of the claim may have changed.
func (l *Lease) Hinted(i int, now clock.Instant) Todo {
	if !l.IsWatched() {
		return Todo{}
	}
	l.ensureDivergence().watch.schedule(i, now)
	return l.Plan()
}

// Looked takes node i's reply to a look.
func (l *Lease) Looked(i int, reply protocol.Reply, now clock.Instant) Todo {
	ours := reply.Outcome == protocol.Granted
	switch {
	case !ours && reply.Outcome != protocol.Refused: // not told; the deadline and the renewals do not depend on it
	case !l.IsWatched() || ours && l.divergence == nil:
	case ours:
		l.divergence.watch.missing.Remove(i)
	default:
		w := &l.ensureDivergence().watch
		if w.replies == nil {
			w.replies = map[int]protocol.Reply{}
		}
		w.replies[i] = reply
		w.missing.Add(i)
		if reply.TTL == 0 {
			w.absent.Add(i)
		}
		return l.weighMissing(now)
	}
	return Todo{}
}

// weighMissing draws the conclusions from what the looks have told: nodes that do not
// hold the claim will not hold it again, unless it is given back to them.
func (l *Lease) weighMissing(now clock.Instant) Todo {
	if l.ended != Held || l.divergence == nil {
		return Todo{}
	}
	w := &l.divergence.watch
	if t := (quorum.Tally{Nodes: l.terms.Nodes, Refused: w.missing.Size()}); t.Gone() {
		return l.end(Missing, nil)
	}
	if l.renewForAbsent(now) {
		return l.Plan()
	}
	return Todo{}
}

// renewForAbsent is renewSoon if nodes have lost their key, and no renewal is under way that gives it
// back to them.
func (l *Lease) renewForAbsent(now clock.Instant) bool {
	return l.isAbsentSomewhere() && l.renewal == nil && l.renewSoon(now)
}

// renewSoon moves the next renewal forward, if there will be one. It reports whether it has.
func (l *Lease) renewSoon(now clock.Instant) bool {
	at := now.Add(repairDelay)
	if at >= l.renewAt || !l.isRenewed() {
		return false
	}
	l.renewAt = at
	return true
}

// isAbsentSomewhere reports whether nodes have lost their key since the last extension was sent.
func (l *Lease) isAbsentSomewhere() bool {
	return l.divergence != nil && l.divergence.watch.absent != 0
}

// found notes that node i has shown that it holds the claim.
func (l *Lease) found(i int) {
	if l.divergence != nil {
		l.divergence.watch.missing.Remove(i)
		l.divergence.watch.absent.Remove(i)
	}
}

// Told returns what looks have told of the nodes that do not hold the claim, and since when they had
// been asked.
func (l *Lease) Told(now clock.Instant) (missing map[int]protocol.Reply, asked clock.Instant) {
	missing = map[int]protocol.Reply{}
	if l.divergence == nil {
		return missing, now
	}
	w := &l.divergence.watch
	for i, reply := range w.replies {
		if w.missing.Has(i) {
			missing[i] = reply
		}
	}
	if asked = w.last; asked == 0 { // by the first look
		asked = now
		if l.tenure != nil { // when that was due
			asked = min(now, l.tenure.Since.Add(watchAfter))
		}
	}
	return missing, asked
}
