package redlock

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/protocol"
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
	node        int         // that is asked first
	avoid       quorum.Set  // nodes that are of no use for that
	stops       []func()    // of the Watch of each slot at node
	watching    bool
	followHints bool // until the next try
	splits      int  // tries in a row that node or second was wrong about
	moves       int  // to other nodes, in this rest
	notBefore   clock.Instant
	lookedAt    clock.Instant
	due         clock.Instant // the answers to the looks
	extended    bool          // they were waited for longer, since this process had overslept
	measured    bool          // how long they took
	second      int           // the node that was asked last besides
	secondAsked bool          // in this rest
	guide       int           // the node that called the slot free; noGuide: it is a guess

	mu        lockorder.Mutex[lockorder.Slots] // of what is told by other goroutines
	asked     int                              // the number of the last set of looks; answers to others are ignored
	open      int                              // looks without an answer
	failed    bool                             // one was answered with nothing
	all       bool                             // all slots are to be looked at, and not only spent
	watchAll  bool                             // with hints: the node may not remember all
	spent     []int                            // slots whose hints have been used up
	free      []int                            // slots that node called free
	hinted    []int                            // slots that it has hinted at since
	elsewhere []int                            // slots that seem free at the second node
	left      time.Duration
}

// maxSpent is how many slots are looked at one by one. If more have changed the node is asked
// about all.
const maxSpent = 4

// noGuide: no node has called the slot free.
const noGuide = -1

// maxSplits is how many tries in a row the first node may be wrong about. Where many compete it is wrong
// once in a while, and to leave it then would part the callers.
const maxSplits = 3

// inLineForPermit is inLine for callers with several permits.
func (a *acquisition) inLineForPermit() (lock *Lock, err error) {
	a.group.queue.enter(a)
	s := &search{acquisition: a, guide: noGuide, all: true, plan: everyNode}
	s.node = s.group.voters.First(s.key, &s.avoid, s.group.voters.Overdue())
	defer func() {
		s.unwatch()
		a.leaveLine(lock)
	}()
	return a.retry(s)
}

func (s *search) next(try int) (*Lock, error) {
	q := &s.group.queue
	handed, yield := q.await(s.acquisition)
	if handed != nil {
		if lock := s.take(handed); lock != nil {
			return lock, nil
		}
	}
	if err := s.inheritOutage(); err != nil {
		return nil, err
	}
	if cost := q.standBack(s.line); yield && cost > 0 { // there is no queue in which to leave the slot to others
		s.pause(cost + s.settings.jitter(cost/2+1))
	}
	if err := s.interrupted(); err != nil {
		return nil, s.endedAfter(s.failure, err)
	}
	if try == 0 {
		s.slot = s.guessSlot()
	}
	return nil, nil
}

func (s *search) try(int) (*Lock, error) {
	lock, err := s.attempt(s.plan)
	if err == nil {
		s.group.queue.joinTurn(s.line, lock.session)
		s.leaveWord()
	}
	return lock, err
}

func (s *search) lost(try int, failed *QuorumError) {
	if s.plan == everyNode {
		s.remember(failed) // the other kind knows of one node only
	}
	if failed.Err == errStale {
		s.plan, s.guide = everyNode, noGuide
		return
	}
	s.learn(failed)
	s.plan = s.rest(s.settings.delay(try, failed))
}

// leaveWord tells the next caller of this process where another slot is free.
func (s *search) leaveWord() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.free {
		if slot != s.slot {
			s.group.queue.leftSlots.remember(s.line.key, slot)
			return
		}
	}
}

// watch has the node hint at all slots.
func (s *search) watch() {
	if s.watching {
		return
	}
	s.watching = true
	s.setAll(true)
	w, ok := s.group.nodes[s.node].(protocol.Watchable)
	if !ok {
		return
	}
	s.stops = make([]func(), s.settings.permits)
	for slot := range s.stops {
		s.stops[slot] = w.Watch(keys.Slot(s.key, slot), func(string) { s.hint(slot) })
	}
}

func (s *search) unwatch() {
	for _, stop := range s.stops {
		stop()
	}
	s.stops, s.watching = nil, false
}

func (s *search) setAll(watch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.watchAll = true, s.watchAll || watch
}

// hint is called by the node when a slot may have changed.
func (s *search) hint(slot int) {
	s.mu.Lock()
	s.spend(slot)
	switch {
	case s.watchAll: // it is only one of many, as when the node has just begun to give hints
		s.hinted = nil
	case !slices.Contains(s.hinted, slot):
		s.hinted = append(s.hinted, slot)
	}
	s.mu.Unlock()
	s.parker.Wake()
}

// spend notes that the node gives no more hints of the slot. The search must be locked.
func (s *search) spend(slot int) {
	if slices.Contains(s.spent, slot) {
		return
	}
	if s.spent = append(s.spent, slot); len(s.spent) > maxSpent {
		s.all, s.watchAll, s.spent = true, true, nil
	}
}

// learn draws the conclusions from a try. Where the node that called the slot free is wrong, it lacks the
// holder's key, or other callers have taken nodes in between. A guess at the end of a rest tells nothing
// of a node, nor does it defer hints: one that lacks keys grants each of them.
func (s *search) learn(failed *QuorumError) {
	s.notBefore = 0
	s.followHints = failed.Err == ErrHeld
	misled := failed.Votes > 0 || failed.Causes != nil && len(failed.Causes.Errors) > 1
	s.mu.Lock()
	s.spend(s.slot)
	others := len(s.free) + len(s.hinted)
	s.mu.Unlock()
	switch {
	case s.guide >= 0 && misled:
		s.splits++
		if more := s.splits - (failed.Nodes - failed.Quorum); more > 0 {
			d := min(wait.FirstWait<<min(more+2, 10), wait.Longest)
			s.notBefore = s.settings.clock.Now().Add(d/2 + s.settings.jitter(d/2))
		}
		if s.guide != s.node || s.splits >= maxSplits {
			s.leave(s.guide)
		}
	case failed.Votes == 0:
		s.splits = 0
		if s.guide == s.node && others == 0 {
			s.notBefore = s.settings.clock.Now().Add(wait.HintGap + s.settings.jitter(wait.HintGap))
		}
	}
}

// leave asks others than node i about slots, and that one again only when all have been of no use.
func (s *search) leave(i int) {
	s.avoid.Add(i)
	if i == s.node {
		s.unwatch()
		s.node, s.splits = s.group.voters.First(s.key, &s.avoid, s.group.voters.Overdue()), 0
	}
}

// A slotLook is one question about slots.
type slotLook struct {
	search *search
	req    protocol.Request
	number int // search.asked
	node   int
	slot   int  // the one that an OpWatch is about
	second bool // it went to the second node
}

// Receive implements protocol.Receiver.
func (k *slotLook) Receive(_ int, reply protocol.Reply) {
	s := k.search
	answered := reply.Outcome == protocol.Granted || reply.Outcome == protocol.Refused
	if answered {
		s.group.voters.Answered(k.node)
	}
	s.mu.Lock()
	switch free := ownSlots(reply.Free, s.settings.permits); {
	case k.number != s.asked:
	case k.second:
		s.elsewhere = free
	case !answered:
		s.failed = true
	default:
		s.open--
		if k.req.Watch && len(free) == protocol.MostFree { // it has not looked at the others
			s.watchAll = true
		}
		if k.req.Op == protocol.OpWatch && reply.Outcome == protocol.Granted {
			free = []int{k.slot}
		}
		for _, slot := range free {
			if !slices.Contains(s.free, slot) {
				s.free = append(s.free, slot)
			}
		}
		if reply.Outcome == protocol.Refused && reply.TTL > 0 && (s.left == 0 || reply.TTL < s.left) {
			s.left = reply.TTL
		}
	}
	s.mu.Unlock()
	s.parker.Wake()
}

// submit asks node i. A node that refuses to be asked has failed.
func (k *slotLook) submit(i int) {
	k.node = i
	if k.search.group.nodes[i].Submit(&k.req, 0, k) != nil {
		k.Receive(0, protocol.Reply{Outcome: protocol.Failed})
	}
}

// lookOut asks the node about all slots, with hints if it may not remember all of them, and for
// hints of those that have been used up.
func (s *search) lookOut(now clock.Instant) {
	if node := s.group.voters.First(s.key, &s.avoid, s.group.voters.Overdue()); node != s.node {
		s.unwatch()
		s.node = node
	}
	s.watch()
	s.mu.Lock()
	watch := s.watchAll || s.open > 0 || s.failed
	all, spent := s.all || watch, s.spent
	if watch {
		spent = nil
	}
	s.all, s.watchAll, s.spent, s.failed, s.elsewhere = false, false, nil, false, nil
	s.asked++
	number := s.asked
	if s.open = len(spent); all {
		s.open++
		s.free, s.hinted, s.left = nil, nil, 0
	}
	s.mu.Unlock()

	s.lookedAt, s.due = now, now.Add(s.group.voters.AnswerLimit(s.node, s.settings.timeout()))
	s.extended, s.measured = false, !all && len(spent) == 0
	if all {
		k := &slotLook{search: s, number: number, req: s.slotsRequest()}
		k.req.Watch = watch
		k.submit(s.node)
	}
	for _, slot := range spent {
		k := &slotLook{search: s, number: number, slot: slot, req: protocol.Request{
			Op: protocol.OpWatch, Key: keys.Slot(s.key, slot), Timeout: s.settings.timeout(),
		}}
		k.submit(s.node)
	}
}

// askSecond asks another node for free slots, if there is one that is of use.
func (s *search) askSecond() {
	s.secondAsked = true
	n := len(s.group.nodes)
	avoid := s.avoid | s.group.voters.Overdue()
	avoid.Add(s.node)
	for range n {
		if s.second = (s.second + 1) % n; !avoid.Has(s.second) {
			(&slotLook{search: s, number: s.asked, second: true, req: s.slotsRequest()}).submit(s.second)
			return
		}
	}
	s.avoid = 0 // the others have been of no use either
}

// rest sleeps until there is reason to try again, for d at most. It chooses the slot, and returns
// the node to ask first.
func (s *search) rest(d time.Duration) (first ballot.Plan) {
	clock := s.settings.clock
	now := clock.Now()
	s.guide = noGuide
	s.moves, s.secondAsked = 0, false
	if s.followHints {
		s.lookOut(now)
	}
	end := now.Add(d)
	for armed := end.Add(1); ; {
		if s.isOver() {
			return everyNode
		}
		if s.group.queue.hasNews(s.line) {
			s.slot = s.guessSlot() // right behind our own release
			return everyNode
		}
		now = clock.Now()
		due := end
		if s.followHints {
			next, plan, ok := s.check(now)
			if ok {
				return plan
			}
			if left := s.takeLeft(); left > 0 {
				end = min(end, now.Add(s.settings.beyond(left)))
			}
			if due = min(end, next); next < wait.Never && s.isAsking() {
				due = next // an answer is worth more than a guess
			}
		}
		if now >= due && now >= end {
			s.slot = s.lastChoice()
			s.setAll(false)
			return everyNode
		}
		if due != armed {
			armed = due
			s.parker.WakeAfter(due.Sub(now))
		}
		s.sleep()
	}
}

// takeLeft returns, once, how long it takes until the first slot is free.
func (s *search) takeLeft() (left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, s.left = s.left, 0
	return left
}

// isAsking reports whether the node has yet to answer.
func (s *search) isAsking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open > 0 && !s.failed
}

// lastChoice chooses the slot to be tried at all nodes at the end of a rest.
func (s *search) lastChoice() int {
	s.mu.Lock()
	free := s.free
	if len(free) == 0 {
		free = s.elsewhere
	}
	s.mu.Unlock()
	if len(free) > 0 {
		return free[s.settings.draw(len(free))]
	}
	return s.guessSlot()
}

// check does what is due, and returns when to do so again. If a slot seems free, it is chosen, and
// the node returned that is to be asked first.
func (s *search) check(now clock.Instant) (next clock.Instant, first ballot.Plan, ok bool) {
	s.mu.Lock()
	open, failed, free, elsewhere := s.open, s.failed, s.free, s.elsewhere
	if len(free) == 0 {
		free = s.hinted
	}
	unsure := s.all && len(s.free) == 0 // many slots have changed
	s.mu.Unlock()
	if open > 0 && !failed {
		if !s.extended && ballot.HasOverslept(now.Sub(s.due), 0) {
			s.due, s.extended = now.Add(ballot.MinAnswerLimit), true
		}
		if now < s.due && len(free) == 0 {
			return s.due, everyNode, false
		}
		if now >= s.due {
			s.group.voters.PassOver(s.node)
			failed = true
		}
	}
	switch {
	case failed:
		if s.moves == len(s.group.nodes) {
			return wait.Never, everyNode, false
		}
		s.moves++
		s.leave(s.node)
		s.lookOut(now)
		return s.check(now)
	case !s.measured && open == 0:
		s.measured = true
		s.group.voters.Measured(s.node, now.Sub(s.lookedAt))
	}
	switch {
	case unsure && open == 0:
		if next = max(s.notBefore, s.lookedAt.Add(wait.HintGap)); now < next {
			return next, everyNode, false
		}
		s.lookOut(now)
		return s.check(now)
	case len(free) > 0:
		if now < s.notBefore {
			return s.notBefore, everyNode, false
		}
		s.takeSlot(free[s.settings.draw(len(free))])
		s.guide = s.node
		return 0, ballot.Probe(s.node), true
	}
	if len(elsewhere) > 0 {
		if now < s.notBefore {
			return s.notBefore, everyNode, false
		}
		s.slot, s.guide = elsewhere[s.settings.draw(len(elsewhere))], s.second
		return 0, everyNode, true
	}
	if !s.secondAsked {
		if next = s.lookedAt.Add(wait.SecondAfter); now < next {
			return next, everyNode, false
		}
		s.askSecond()
	}
	return wait.Never, everyNode, false
}

// takeSlot chooses a slot that seems free.
func (s *search) takeSlot(slot int) {
	s.slot = slot
	s.mu.Lock()
	defer s.mu.Unlock()
	isSlot := func(other int) bool { return other == slot }
	s.free = slices.DeleteFunc(slices.Clone(s.free), isSlot)
	s.hinted = slices.DeleteFunc(slices.Clone(s.hinted), isSlot)
}
