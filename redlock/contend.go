package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A caller that was refused waits for a hint that the lock may be free, and then asks one node
// before the others. All contenders ask the same, so that one of them gets it and goes on to the
// rest, and the others have taken nothing. If they asked all nodes at once, they would keep
// splitting them among themselves.
//
// The hint comes from that node as well (protocol.Watchable). A jittered timer runs beside it, at
// whose end all nodes are asked at once: so a hint that is lost costs a delay, and so does a node
// that fails, or that holds what no quorum holds. Which node it is differs between names, and
// changes when it has failed.
//
// A caller that was passed over takes a place in the order that this node keeps (place.go).
//
// That node is a guess, never a gate. If it leaves a question unanswered for a few of
// its usual round trips (roundTrip), the others are asked, and another is the first
// until it answers again. And a second node hints as well: if it says that the key has
// changed and the first does not, the first is asked whether it is still there.

// inLine waits for as long as it takes. Callers of one process take turns in
// order, and hand the lock over among themselves.
func (a *acquisition) inLine() (lock *Lock, err error) {
	q := &a.group.queue
	q.enter(a)
	var got *session
	defer func() {
		a.contender.leaveField(got != nil)
		if s := q.leave(a, got); s != nil {
			s.drop(lease.Released)
		}
	}()
	first := everyNode
	for try := 0; ; try++ {
		next, yield := q.await(a)
		if next != nil {
			if lock = a.take(next); lock != nil {
				got = next
				return lock, nil
			}
		}
		if err := a.inheritOutage(); err != nil {
			return nil, err
		}
		joins := q.readers(a) != nil
		if a.settings.inOrder() || yield && !joins {
			a.contend().takePlace()
		}
		if a.contender.isQueued() && !joins {
			if first = a.contender.awaitTurn(); q.isHandedOver(a) {
				continue
			}
		}
		if err := a.interrupted(); err != nil {
			return nil, a.endedAfter(a.failure, err)
		}
		if a.mustSee() {
			first = everyNode
		}
		if lock, err = a.try(first); err == nil {
			got = lock.session
			q.joinTurn(a.line, got)
			if c := a.contender; c != nil {
				if c.met {
					q.contended(a.line, a.settings.clock.Now())
				}
				q.setOthers(a.line.key, c.othersSeen())
			}
			return lock, nil
		}
		failed, over := a.judge(try, err)
		if over != nil {
			return nil, over
		}
		if first == everyNode {
			a.remember(failed) // the other kind knows of one node only
		}
		if failed.Err != errStale {
			c := a.contend()
			c.lost(first, failed)
			if c.wasPassedOver(try, failed) {
				c.takePlace()
			}
			if c.isQueued() && !c.unordered && failed.Err == ErrHeld {
				continue // with the others who wait
			}
			first = c.rest(a.settings.delay(try, failed))
		}
	}
}

// A contender is a caller that competes with other processes. Its methods are for
// its own goroutine, but for hint and hintOfBackup.
type contender struct {
	*acquisition

	node              int           // that is asked first
	avoid             quorum.Set    // nodes that are of no use for that
	stop              func()        // of the Watch at lookout; nil: there is none
	lookout           int           // the node that hints: node, or another while the caller has a place
	question          *question     // the last about the key; nil: node has not been asked
	since             clock.Instant // it contends
	triedAt           clock.Instant // the last try was over
	place             *place        // of a fair caller, or one that was passed over
	met               bool          // another process had the lock, or waited for it as well
	keepsNoQueue      quorum.Set    // nodes that did not keep its place, until muteUntil
	keepsNoQueueUntil clock.Instant
	unordered         bool // no node keeps its place at the moment
	splits            int  // tries in a row that took the first node, and too few others
	followHints       bool // at once, until the next try
	called            bool // the last try was made because the lock seemed free
	fruitlessCalls    int  // how often that was in vain although it was the caller's turn
	moves             int  // to other nodes, in this rest

	backup     int           // hints as well; valid with second
	second     *question     // the one to it; nil: it has not been asked since question
	stopBackup func()        // of the Watch there; nil: there is none
	notHolding quorum.Set    // nodes that the holder does without
	askAgain   clock.Instant // when to ask node whether it is there; zero: there is no reason

	notBefore clock.Instant // hints are followed

	hinted       atomic.Bool // the key may have changed at node
	backupHinted atomic.Bool // and at backup
}

// contend returns a's contender, creating it on the first call.
func (a *acquisition) contend() *contender {
	if a.contender == nil {
		now := a.settings.clock.Now()
		a.contender = &contender{acquisition: a, since: now, triedAt: now}
		a.contender.node = a.chooseFirst(&a.contender.avoid)
	}
	return a.contender
}

// chooseFirst returns the node that is to be asked first. It avoids those that are bad, until all
// are, and those that are overdue, as long as there are others.
func (a *acquisition) chooseFirst(bad *quorum.Set) int {
	return a.choose(bad, a.group.voters.Overdue())
}

// choose is chooseFirst, where it is another set of nodes that is overdue.
func (a *acquisition) choose(bad *quorum.Set, overdue quorum.Set) int {
	nodes := a.group.nodes
	if *bad == quorum.All(len(nodes)) {
		*bad = 0
	}
	if node := firstOf(nodes, a.key, *bad|overdue); node >= 0 {
		return node
	}
	return firstOf(nodes, a.key, *bad)
}

// firstOf draws one of the nodes that are not in avoid, or -1 if there is none: by lot,
// but the same in all processes, whatever order they list the nodes in, and each node
// for about as many keys.
func firstOf(nodes []protocol.Node, key string, avoid quorum.Set) int {
	best, most := -1, uint64(0)
	for i, n := range nodes {
		if avoid.Has(i) {
			continue
		}
		if lot := hash.Mix(hash.Text(hash.Text(hash.Basis, n.String()), key)); best < 0 || lot > most {
			best, most = i, lot
		}
	}
	return best
}

// leaveField gives back what waiting takes. Who has not got the lock overtakes nobody.
func (c *contender) leaveField(got bool) {
	if c != nil {
		if c.place != nil && !got {
			c.place.tookOver = false
		}
		c.unwatch()
		c.place.giveBack()
	}
}

func (c *contender) unwatch() {
	c.unwatchLock()
	c.unwatchBackup()
	c.place.unwatch()
}

func (c *contender) unwatchLock() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

func (c *contender) unwatchBackup() {
	if c.stopBackup != nil {
		c.stopBackup()
		c.stopBackup = nil
	}
}

func (c *contender) hint(string) {
	c.hinted.Store(true)
	c.parker.Wake()
}

func (c *contender) hintOfBackup(string) {
	c.backupHinted.Store(true)
	c.parker.Wake()
}

// isFree reports whether the key seems free at the node that is asked first.
func (c *contender) isFree() bool { return c.hinted.Load() || c.question.saw() == protocol.Granted }

// hintGap is how soon after a hint that was followed in vain the next is. Where
// another process hands a lock over among its own callers, each time makes a hint, and a turn
// lasts for five times as long. It is also how much sooner than the first node another
// may hint.
const hintGap = time.Millisecond

// lost draws the conclusions from a try.
//
// Hints are followed at once only while that leads somewhere: contenders who take
// nodes from each other make hints for each other, so they follow them ever later. And
// a node that granted where too many others refused does not know the holder, so
// another is asked first from now on. As many nodes as a holder can do without may be
// of that kind.
func (c *contender) lost(first ballot.Plan, failed *QuorumError) {
	c.notBefore = 0
	c.followHints = failed.Err == ErrHeld
	c.met = c.met || c.followHints
	c.triedAt = c.settings.clock.Now()
	if c.place != nil {
		c.place.tookOver = false
	}
	switch {
	case failed.Votes == 0:
		c.splits = 0
		if c.called {
			c.fruitlessCalls++
		}
		if first.Probes(c.node) || c.isQueued() {
			c.notBefore = c.settings.clock.Now().Add(hintGap + c.settings.jitter(hintGap))
		}
	case c.isQueued():
		c.splits++
		c.notHolding.Add(c.node) // others came in between, and the holder does without it
		wait := min(hintGap<<min(c.splits, 10), maxWait)
		c.notBefore = c.settings.clock.Now().Add(wait/2 + c.settings.jitter(wait/2))
	case first.Probes(c.node):
		c.splits++
		c.leave()
	}
	if more := c.splits - (failed.Nodes - failed.Quorum); more > 0 && !c.isQueued() {
		wait := min(firstWait<<min(more+2, 10), maxWait)
		c.notBefore = c.settings.clock.Now().Add(wait/2 + c.settings.jitter(wait/2))
	}
}

// leave turns to another node, and back to this one only when all have been of no use.
func (c *contender) leave() {
	c.avoid.Add(c.node)
	c.turnTo(c.chooseFirst(&c.avoid))
}

// turnTo has the node asked first from now on.
func (c *contender) turnTo(node int) {
	if node != c.node {
		c.unwatch()
		c.place.giveBackAt(c.node)
		c.node = node
	}
	c.question = nil
}

// answerLimit is how long the node is waited for. One that keeps a queue for fair callers is
// replaced less lightly: while some waiters have moved to another node and some have not, their
// order is lost.
func (c *contender) answerLimit() time.Duration {
	timeout := c.settings.timeout()
	limit := c.group.voters.AnswerLimit(c.node, timeout)
	if cost := c.group.queue.lastCost(c.line); limit == timeout && cost > 0 { // no node has been measured
		limit = min(max(4*cost, ballot.MinAnswerLimit), timeout)
	}
	if c.settings.inOrder() {
		limit = min(max(limit, queueAnswerLimit), timeout)
	}
	return limit
}

// rest sleeps until there is reason to try again, for d at most, and returns the
// node to ask first then.
func (c *contender) rest(d time.Duration) (first ballot.Plan) {
	clock := c.settings.clock
	now := clock.Now()
	c.moves, c.notHolding = 0, 0
	c.hinted.Store(false)
	if c.followHints {
		c.askForHints(now)
	}
	end := c.place.restEnd(now, now.Add(d))
	for armed := end.Add(1); ; {
		if c.isOver() {
			return everyNode
		}
		if c.group.queue.hasNews(c.line) {
			return everyNode // right behind our own release
		}
		now = clock.Now()
		first, due := everyNode, end
		if c.followHints {
			next := c.checkHints(now)
			if left := c.question.takeLeft(); left > 0 {
				end = min(end, now.Add(c.settings.beyond(left)))
			}
			if due = min(end, next); c.isFree() {
				first, due = ballot.Probe(c.node), min(end, c.notBefore)
			}
		}
		if now >= due {
			return first
		}
		if due != armed {
			armed = due
			c.parker.WakeAfter(due.Sub(now))
		}
		c.sleep()
	}
}
