package redlock

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// A search is a caller's with several permits that waits for a free slot and competes with other
// processes. It does for many keys what a wait.Waiter does for one: one node tells which slots
// are free and hints at their changes, and is asked alone for the slot that is tried next. A
// caller draws among the free slots, because many who wait must not chase the same one.
//
// The node is a guess, never a gate. If it does not answer, another takes its place. It may hold
// a slot that no quorum holds, or be silent after it has answered. So if a rest is not
// a short one a second node is asked, another each time, and a slot that is free there is tried
// at all nodes. And at the end of each rest any slot is.
//
// Its methods are for the caller's own goroutine, but for hint and Receive of its looks.
type search struct {
	*acquisition

	plan        ballot.Plan // of the next try
	guide       int         // the node that called the slot free; noGuide: it is a guess
	node        int         // that is asked first
	stops       []func()    // of the Watch of each slot at node
	avoid       quorum.Set  // nodes that are of no use for that
	followHints bool        // until the next try
	splits      int         // tries in a row that a guide was wrong about
	vain        int         // tries in a row that won nothing
	notBefore   clock.Instant
	moves       int // to other nodes, in this rest
	second      int // the node that was asked last besides
	secondAsked bool
	look        *slotLook // the last
	seen        slotsSeen
}

// What the nodes have said since the last look.
type slotsSeen struct {
	mu        lockorder.Mutex[lockorder.Slots]
	round     int   // of looks; answers to others are ignored
	free      []int // slots that node calls free, or has hinted at
	elsewhere []int // slots that seem free at the second node
	unsure    bool  // any slot may have changed
	left      time.Duration
}

// noGuide: no node has called the slot free.
const noGuide = -1

// maxSplits is how many tries in a row the first node may be wrong about. Where many compete it is wrong
// once in a while, and to leave it then would part the callers.
const maxSplits = 3

// inLineForPermit is inLine for callers with several permits.
func (a *acquisition) inLineForPermit() (lock *Lock, err error) {
	a.group.queue.enterForSlot(a)
	s := &search{acquisition: a, guide: noGuide, plan: everyNode}
	s.choose()
	defer func() {
		s.unwatch()
		a.dropUnwanted(a.group.queue.leaveForSlot(a, sessionOf(lock)))
	}()
	return a.retry(s)
}

func (s *search) next(try int) (ballot.Plan, *Lock, error) {
	lock, yield, err := s.awaitTurn()
	if lock != nil || err != nil {
		return s.plan, lock, err
	}
	if cost := s.group.queue.standBack(s.line); yield && cost > 0 { // there is no queue in which to leave the slot to others
		s.pause(cost + s.settings.jitter(cost/2+1))
	}
	if err := s.interrupted(); err != nil {
		return s.plan, nil, s.endedAfter(s.failure, err)
	}
	if try == 0 {
		s.slot = s.guessSlot()
	}
	return s.plan, nil, nil
}

func (s *search) try(plan ballot.Plan) (*Lock, error) {
	lock, err := s.attempt(plan)
	if err == nil {
		s.group.queue.joinTurn(s.line, lock.session, false)
		s.leaveWord()
	}
	return lock, err
}

func (s *search) lost(try int, failed *QuorumError) {
	if failed.Err == errStale {
		s.plan, s.guide = everyNode, noGuide
		return
	}
	s.learn(failed)
	s.plan = s.rest(s.settings.delay(try, failed))
}

// leaveWord tells the next caller of this process where another slot is free.
func (s *search) leaveWord() {
	for _, slot := range s.seen.freeSlots() {
		if slot != s.slot {
			s.group.queue.slots.left.remember(s.line.key, slot)
			return
		}
	}
}

func (v *slotsSeen) freeSlots() []int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.free)
}

// add notes that a slot seems free.
func (v *slotsSeen) add(slot int) {
	if !slices.Contains(v.free, slot) {
		v.free = append(v.free, slot)
	}
}

// take takes out a slot that is about to be tried.
func (v *slotsSeen) take(slot int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.free = slices.DeleteFunc(v.free, func(other int) bool { return other == slot })
}

// takeLeft returns, once, how long it takes until the first slot is free.
func (v *slotsSeen) takeLeft() (left time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	left, v.left = v.left, 0
	return left
}

// choose turns to the node that is to be asked first.
func (s *search) choose() {
	if node := s.group.voters.First(s.key, &s.avoid, s.group.voters.Overdue()); node != s.node {
		s.unwatch()
		s.node = node
	}
}

// leave asks others than node i about slots, and that one again only when all have been of no use.
func (s *search) leave(i int) {
	s.avoid.Add(i)
	if i == s.node {
		s.splits = 0
		s.choose()
	}
}

// watch has the node hint at all slots.
func (s *search) watch() {
	w, ok := s.group.nodes[s.node].(protocol.Watchable)
	if !ok || s.stops != nil {
		return
	}
	s.stops = make([]func(), s.settings.permits)
	for slot := range s.stops {
		s.stops[slot] = w.Watch(keys.Slot(s.key, slot), func(key string) { s.hint(slot, key) })
	}
}

func (s *search) unwatch() {
	for _, stop := range s.stops {
		stop()
	}
	s.stops = nil
}

// hint is called by the node when a slot may have changed, or any.
func (s *search) hint(slot int, key string) {
	s.seen.mu.Lock()
	if key == "" {
		s.seen.unsure = true
	} else {
		s.seen.add(slot)
	}
	s.seen.mu.Unlock()
	s.parker.Wake()
}

// learn draws the conclusions from a try. Where the node that called the slot free is wrong, it lacks the
// holder's key, or other callers have taken nodes in between. A guess at the end of a rest tells nothing
// of a node, nor does it defer hints: one that lacks keys grants each of them.
func (s *search) learn(failed *QuorumError) {
	s.notBefore = 0
	s.followHints = failed.Err == ErrHeld
	misled := failed.Votes > 0 || failed.Causes != nil && len(failed.Causes.Errors) > 1
	now := s.settings.clock.Now()
	switch {
	case s.guide >= 0 && misled:
		s.vain = 0
		s.splits++
		if more := s.splits - (failed.Nodes - failed.Quorum); more > 0 {
			d := min(wait.FirstWait<<min(more+2, 10), wait.Longest)
			s.notBefore = now.Add(d/2 + s.settings.jitter(d/2))
		}
		if s.guide != s.node || s.splits >= maxSplits {
			s.leave(s.guide)
		}
	case failed.Votes == 0:
		s.splits = 0
		if s.vain++; s.guide == s.node && (s.vain > 1 || len(s.seen.freeSlots()) == 0) {
			s.notBefore = now.Add(wait.HintGap + s.settings.jitter(wait.HintGap))
		}
	}
}

// A slotLook is one question about all slots.
type slotLook struct {
	search   *search
	req      protocol.Request
	node     int
	at       clock.Instant // it was asked
	answer   ballot.Limit
	measured bool          // how long the answer took
	outcome  atomic.Uint32 // zero: none yet
	second   bool          // it went to the second node
	round    int
}

func (k *slotLook) saw() protocol.Outcome { return protocol.Outcome(k.outcome.Load()) }

// Receive implements protocol.Receiver.
func (k *slotLook) Receive(_ int, reply protocol.Reply) {
	s := k.search
	if reply.Outcome == protocol.Granted || reply.Outcome == protocol.Refused {
		s.group.voters.Answered(k.node)
		s.seen.mu.Lock()
		switch free := ownSlots(reply.Free, s.settings.permits); {
		case k.round != s.seen.round:
		case k.second:
			s.seen.elsewhere = free
		default:
			for _, slot := range free {
				s.seen.add(slot)
			}
			s.seen.left = max(0, reply.TTL)
		}
		s.seen.mu.Unlock()
	}
	k.outcome.Store(uint32(reply.Outcome))
	s.parker.Wake()
}

// ask submits a question to node i. A node that refuses to be asked has failed.
func (s *search) ask(i int, second bool) *slotLook {
	now := s.settings.clock.Now()
	k := &slotLook{search: s, node: i, second: second, req: s.slotsRequest(), at: now, round: s.seen.round}
	k.answer.Due = now.Add(s.group.voters.AnswerLimit(i, s.settings.timeout()))
	k.req.Watch = !second
	if s.group.nodes[i].Submit(&k.req, 0, k) != nil {
		k.Receive(0, protocol.Reply{Outcome: protocol.Failed})
	}
	return k
}

// lookOut asks the node about all slots, and for hints.
func (s *search) lookOut() {
	s.choose()
	s.watch()
	s.seen.mu.Lock()
	s.seen.round++
	s.seen.free, s.seen.elsewhere, s.seen.unsure, s.seen.left = nil, nil, false, 0
	s.seen.mu.Unlock()
	s.look = s.ask(s.node, false)
}

// askSecond asks another node for free slots, if there is one that is of use.
func (s *search) askSecond() {
	s.secondAsked = true
	n := len(s.group.nodes)
	avoid := s.avoid | s.group.voters.Overdue()
	avoid.Add(s.node)
	for range n {
		if s.second = (s.second + 1) % n; !avoid.Has(s.second) {
			s.ask(s.second, true)
			return
		}
	}
	s.avoid = 0 // the others have been of no use either
}

// rest sleeps until there is reason to try again, for d at most. It chooses the slot, and returns
// the node to ask first.
func (s *search) rest(d time.Duration) (first ballot.Plan) {
	clock := s.settings.clock
	end := clock.Now().Add(d)
	s.guide, s.moves, s.secondAsked = noGuide, 0, false
	if s.followHints {
		s.lookOut()
	}
	for armed := end.Add(1); ; {
		if s.isOver() {
			return everyNode
		}
		if s.group.queue.hasNews(s.line) {
			s.slot = s.guessSlot() // right behind our own release
			return everyNode
		}
		now, due := clock.Now(), end
		if s.followHints {
			next, plan, ok := s.check(now)
			if ok {
				return plan
			}
			if left := s.seen.takeLeft(); left > 0 {
				end = min(end, now.Add(s.settings.beyond(left)))
			}
			if due = min(end, next); next < wait.Never && s.look.saw() == 0 {
				due = next // an answer is worth more than a guess
			}
		}
		if now >= due && now >= end {
			s.slot = s.lastChoice()
			return everyNode
		}
		if due != armed {
			armed = due
			s.parker.WakeAfter(due.Sub(now))
		}
		s.sleep()
	}
}

// lastChoice chooses the slot to be tried at all nodes at the end of a rest.
func (s *search) lastChoice() int {
	if free := s.seen.freeSlots(); len(free) > 0 {
		return free[s.settings.draw(len(free))]
	}
	return s.guessSlot()
}

// check does what is due, and returns when to do so again. If a slot seems free, it is chosen, and
// the node returned that is to be asked first.
func (s *search) check(now clock.Instant) (next clock.Instant, first ballot.Plan, ok bool) {
	k, saw := s.look, s.look.saw()
	s.seen.mu.Lock()
	free, elsewhere, unsure := slices.Clone(s.seen.free), s.seen.elsewhere, s.seen.unsure
	s.seen.mu.Unlock()
	switch {
	case saw == 0 && k.answer.IsOver(now):
		s.group.voters.PassOver(s.node)
		return s.move()
	case saw == protocol.Failed || saw == protocol.Unknown:
		return s.move()
	case saw == 0 && len(free) == 0:
		return k.answer.Due, everyNode, false
	case saw != 0 && !k.measured:
		k.measured = true
		s.group.voters.Measured(s.node, now.Sub(k.at))
	}
	switch {
	case (len(free) > 0 || len(elsewhere) > 0) && now < s.notBefore:
		return s.notBefore, everyNode, false
	case len(free) > 0:
		s.slot, s.guide = free[s.settings.draw(len(free))], s.node
		s.seen.take(s.slot)
		return 0, ballot.Probe(s.node), true
	case unsure:
		if next = max(s.notBefore, k.at.Add(wait.HintGap)); now < next {
			return next, everyNode, false
		}
		s.lookOut()
		return s.look.answer.Due, everyNode, false
	case len(elsewhere) > 0:
		s.slot, s.guide = elsewhere[s.settings.draw(len(elsewhere))], s.second
		return 0, everyNode, true
	case !s.secondAsked:
		if next = k.at.Add(wait.SecondAfter); now < next {
			return next, everyNode, false
		}
		s.askSecond()
	}
	return wait.Never, everyNode, false
}

// move asks another node, unless all have been tried in this rest.
func (s *search) move() (next clock.Instant, first ballot.Plan, ok bool) {
	if s.moves == len(s.group.nodes) {
		return wait.Never, everyNode, false
	}
	s.moves++
	s.leave(s.node)
	s.lookOut()
	return s.look.answer.Due, everyNode, false
}
