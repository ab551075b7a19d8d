package wait

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/ticket"
)

const (
	// FirstWait is how long a waiter rests at least between two tries without a hint, and Longest at most:
	// so late is a release noticed of which nobody tells.
	FirstWait = 8 * time.Millisecond
	Longest   = 200 * time.Millisecond

	// maxSilence is how long a waiter says nothing to the node that keeps its place while it tries in
	// vain. The rest of the ticket's life is for slow answers.
	maxSilence = ticket.Life / 2

	// askAgainAfter is how soon a waiter asks again, for each waiter before it: those at the front notice
	// soon that the node has fallen silent, and many cost no more than a few.
	askAgainAfter = 10 * time.Millisecond

	// fairAnswerLimit is how long the node that keeps a queue is waited for at least by fair callers. To
	// move for a hiccup would cost the order.
	fairAnswerLimit = 25 * time.Millisecond

	// HintGap is how soon after a hint that was followed in vain the next is. Where another process hands
	// a lock over among its own callers, each time makes a hint, and a turn lasts for five times as long.
	HintGap = time.Millisecond

	// maxFollowed is how often the first asks all nodes at once. Where it was refused by then the key changes
	// often and is not free, or the node that calls it free does not know the holder: that node is asked
	// before the others.
	maxFollowed = 2
)

// Terms are what a caller waits for, and how.
type Terms struct {
	Nodes   []protocol.Node
	Voters  *ballot.Voters
	Clock   clock.Clock
	Jitter  func(time.Duration) time.Duration
	Timeout time.Duration // of each request
	Desk    *ticket.Desk  // of the key
	NoOrder *atomic.Int64 // until when no node keeps an order, as others of the process have found
	ID      string        // of the place
	Since   clock.Instant // the caller waits
	Fair    bool          // it keeps its place until it has the lock, and takes it out of turn never
	Shared  bool          // it need not wait for others of its kind
}

// A Process is what a Waiter and the other callers of its process share.
type Process interface {
	IsOver() bool                            // the caller's context or the Locker has ended
	Sleep()                                  // until there is reason to look again
	WakeAfter(time.Duration)                 // has Sleep end then
	Wake()                                   // and now
	HasNews() bool                           // once: the key was released in the process, or is handed over
	IsHandedOver() bool                      // to the caller
	IsHeld() bool                            // the lock, by a caller of the process
	Others() int                             // that wait in other processes, as far as it is known
	Cost() time.Duration                     // of the last acquisition; zero: not known
	StandsBehind()                           // a fair caller waits for others of the order
	Beyond(left time.Duration) time.Duration // a moment after a key with so much left has expired
}

// A Waiter is a caller that waits for one key while other processes may. It belongs to the caller's
// goroutine; what nodes tell comes through its lookouts and its place.
type Waiter struct {
	Terms
	process Process

	order    order
	lookouts lookouts
	last     trial
	asked    questions
	met      bool // another process had the lock, or waited for it as well
}

// An order is what a Waiter knows of the nodes that may keep its place.
type order struct {
	place     *ticket.Place // nil: it has none
	node      int           // that keeps it
	bad       quorum.Set    // nodes that keep none, until badUntil
	badUntil  clock.Instant
	failed    int           // nodes in a row
	noneUntil clock.Instant // no node keeps a queue; zero: one does
}

// A trial is what a try has led to.
type trial struct {
	refused   bool          // others had the lock
	pause     time.Duration // until the next, where there is no order and nobody gives a hint
	at        clock.Instant // it was over; at first, when the caller began to wait
	followed  int           // tries of the first by a hint; when it was outrun once it keeps its place
	splits    int           // tries in a row that won some nodes, and too few
	notBefore clock.Instant // the next hint is followed
	free      int           // the node that called the key free, or -1
	tookOver  bool          // what the first of the order has left lie
}

// Questions are what a Waiter has asked last.
type questions struct {
	at       clock.Instant
	call     bool          // to be called
	key      bool          // about the key
	answer   ballot.Limit  // about the place
	again    clock.Instant // when to ask again; zero: the place is not known yet
	takeover clock.Instant // when to take the lock that others leave lie; zero: they do not
}

// New returns a Waiter that has no place yet.
func New(t Terms, p Process) *Waiter {
	w := &Waiter{Terms: t, process: p}
	w.last.at, w.last.free = t.Since, -1
	w.lookouts.waiter = w
	return w
}

// LineUp has the caller wait in the order from the next Await on. A place that it has is kept.
func (w *Waiter) LineUp() {
	if w.order.place != nil {
		return
	}
	w.last.splits, w.last.notBefore = 0, 0
	w.order.place = w.Desk.Take(w.ID)
	w.order.noneUntil = clock.Instant(w.NoOrder.Load())
	w.order.node = w.home()
}

// IsLinedUp reports whether LineUp was called. The nil Waiter is not.
func (w *Waiter) IsLinedUp() bool { return w != nil && w.order.place != nil }

// HasMet reports whether another process had the lock, or waited for it.
func (w *Waiter) HasMet() bool { return w != nil && w.met }

// WasRefused reports whether others had the lock at the last try.
func (w *Waiter) WasRefused() bool { return w != nil && w.last.refused }

// Others returns how many others are known to want the lock that the caller has won.
func (w *Waiter) Others() int {
	if w.order.place != nil && w.isOrdered() {
		if s := w.order.place.Standing(); s.IsFirst() || s.IsBehind() {
			return s.Others
		}
	}
	return 1 // which had it before, and may come again
}

// End gives back what waiting takes. Who has not got the lock overtakes nobody.
func (w *Waiter) End(got bool) {
	if w == nil {
		return
	}
	w.lookouts.close()
	if w.order.place != nil {
		w.order.place.End(w.last.tookOver && got)
	}
}

// Lost draws the conclusions from a try that has won so many votes: with refused, because others have
// the lock. Where there is no order and nobody gives a hint the next try is waited for so long.
func (w *Waiter) Lost(votes int, refused bool, pause time.Duration) {
	t, now := &w.last, w.Clock.Now()
	t.refused, t.pause, t.at, t.notBefore, t.tookOver = refused, pause, now, 0, false
	w.met = w.met || refused
	wait := HintGap
	if votes == 0 {
		t.splits = 0
		t.notBefore = now.Add(wait + w.Jitter(wait))
		return
	}
	// Contenders who take nodes from each other make hints for each other, so they follow them ever later.
	// And a node that calls a key free which others hold does not know the holder.
	t.splits++
	if t.free >= 0 {
		w.lookouts.passedBy.Add(t.free)
	}
	wait = min(HintGap<<min(t.splits, 10), Longest)
	t.notBefore = now.Add(wait/2 + w.Jitter(wait/2))
}

// Rest sleeps for d, or until the key is released in this process. A place is kept: others would take
// one that is silent for dead, and get before it when a quarantine is over.
func (w *Waiter) Rest(d time.Duration) {
	now := w.Clock.Now()
	end := now.Add(d)
	if w.order.place != nil {
		end = min(end, max(w.asked.at.Add(maxSilence), now.Add(FirstWait)))
	}
	w.process.WakeAfter(end.Sub(now))
	for !w.process.IsOver() && !w.process.HasNews() && w.Clock.Now() < end {
		w.process.Sleep()
	}
}

// Await returns when the caller is to try, and how. It returns as well when a caller of the process has
// handed the lock over, or when the caller's context or the Locker has ended.
func (w *Waiter) Await() ballot.Plan {
	call, key := true, true
	if !w.last.refused && !w.process.IsHeld() { // a caller that is alone tries a free lock at once
		others := w.process.Others()
		call, key = others > 1, others == 1 || w.Shared
	}
	w.lookouts.moves, w.last.free = 0, -1
	for !w.process.IsOver() {
		w.ask(call, key)
		step := w.listen()
		w.last.free = w.lookouts.free()
		switch step {
		case tryAll:
			return ballot.EveryNode
		case tryFree:
			if !w.isOrdered() { // all ask the same node, whichever has hinted
				w.last.free = w.lookouts.first.node
				return w.probe()
			}
			w.last.followed++
			switch {
			case w.last.followed > maxFollowed:
				return w.probe()
			case w.last.followed == 1 && !w.Fair:
				w.order.place.Leave(w.order.node, false)
			}
			return ballot.EveryNode
		case tryBeside:
			return w.probe()
		case takeOver:
			w.asked.takeover, w.last.tookOver = 0, true
			return w.probe()
		case move:
			w.move()
			call, key = true, true
		case askAgain:
			s := w.standing()
			key = w.Shared || w.isCalled() || s.IsFirst() || s.IsSecond() ||
				w.asked.at.Sub(w.last.at) >= ticket.Life // those before may be out of reach of a quorum
			call = !s.IsFirst()
			if s.IsBehind() && w.Fair {
				w.process.StandsBehind()
			}
		}
	}
	return ballot.EveryNode
}

// probe is the plan to ask the node first that calls the key free.
func (w *Waiter) probe() ballot.Plan {
	if w.last.free < 0 { // none has said so yet
		return ballot.EveryNode
	}
	return ballot.Probe(w.last.free)
}

// ask takes or keeps the place, and watches for a call, or the key, or both. A first that has not failed
// needs no call, and the key would wake the others for nothing.
func (w *Waiter) ask(call, key bool) {
	now := w.Clock.Now()
	w.asked = questions{at: now, call: call, key: key, takeover: w.asked.takeover}
	w.last.tookOver = false
	if home := w.home(); home != w.order.node {
		w.lookouts.close()
		w.leaveNode()
		w.order.node = home
	}
	w.lookouts.forget()
	if w.isOrdered() {
		if call { // before the question, so that none is missed
			w.order.place.Listen(w.order.node)
		}
		w.order.place.Ask(w.order.node, now.Sub(w.Since))
		w.asked.answer.Due = now.Add(w.answerLimit())
	}
	if key || !w.isOrdered() {
		w.asked.key = true
		w.lookouts.look(now)
	}
}

// listen returns what is to be done as soon as there is something.
func (w *Waiter) listen() step {
	for armed := clock.Instant(0); ; {
		if w.process.HasNews() { // of our own release there is no hint
			w.lookouts.hear()
			if w.process.IsHandedOver() {
				return tryAll
			}
		}
		if w.process.IsOver() {
			return tryAll
		}
		now := w.Clock.Now()
		lookDue, lost := w.lookouts.check(now)
		if lost {
			return move
		}
		v := w.observe(now)
		step, due := v.next()
		due = min(due, lookDue)
		switch {
		case step == late && !w.asked.answer.IsOver(now):
			continue // this process was not run when it was due
		case step == late:
			w.passOver(w.order.node)
			return move
		case step != sleep:
			return step
		}
		if due != armed {
			armed = due
			w.process.WakeAfter(due.Sub(now))
		}
		w.process.Sleep()
	}
}

// observe takes in what the nodes have answered by now. Each answer is read once: the next may come at any
// moment.
func (w *Waiter) observe(now clock.Instant) view {
	q, t := &w.asked, &w.last
	s, called, held := w.standing(), w.isCalled(), w.lookouts.isHeld()
	free := q.key && w.lookouts.isFree()
	w.met = w.met || s.Others > 0 || held
	if s.IsFirst() && called && t.splits <= 3 { // whoever was faster has probably lined up
		t.notBefore = 0
	}
	if s.IsKnown() && !s.HasFailed() && q.again == 0 {
		if w.isOrdered() {
			w.order.failed = 0
			w.Voters.Measured(w.order.node, now.Sub(q.at))
		}
		q.again = now.Add(w.silence(s))
	}
	if s.IsFirst() {
		if left := w.lookouts.takeLeft(); left > 0 {
			q.again = min(q.again, now.Add(w.process.Beyond(left)))
		}
	}
	switch {
	case s.IsBehind() && free && q.takeover == 0 && !w.Fair && !w.Shared:
		q.takeover = now.Add(time.Duration(s.Others) * w.patience())
	case held && !free:
		q.takeover = 0
	}
	return view{
		questions: *q, now: now, standing: s, called: called, free: free,
		own: w.process.IsHeld(), shared: w.Shared, notBefore: t.notBefore,
	}
}

// patience is how long each waiter before this one may leave a free lock lie before it is taken.
func (w *Waiter) patience() time.Duration {
	limit := w.answerLimit()
	return limit + w.Jitter(limit/2+1)
}

// silence returns how soon a waiter that has heard nothing asks again, or tries.
func (w *Waiter) silence(s ticket.Standing) time.Duration {
	if !w.isOrdered() {
		return max(w.last.pause, FirstWait/2) // the caller may not have tried yet
	}
	limit := Longest
	if s.IsBehind() {
		limit = min(limit, time.Duration(s.Others+1)*askAgainAfter)
	}
	return limit/2 + w.Jitter(limit/2)
}
