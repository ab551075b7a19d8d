package redlock

import (
	"context"
	"errors"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Whoever has been refused waits for a hint that the lock may be free, and then
// asks one node before the others. All contenders ask the same, so that one of them
// gets it and goes on to the rest, and the others have taken nothing. Asking
// all nodes at once, they would keep splitting them among themselves.
//
// The hint comes from that node as well (Watchable). A jittered timer runs beside it,
// at whose end all nodes are asked at once: so a hint that is lost costs a delay, and
// a node that fails, or that holds what no quorum holds, is in nobody's way for
// longer. Which node it is differs between names, and changes when it has failed.

// acquireInLine waits for as long as it takes. Callers of one process take turns in
// order, and hand the lock over among themselves.
func (l *Locker) acquireInLine(ctx, told context.Context, s *settings, p *parker, name, key string) (lock *Lock, err error) {
	ln := l.queue.enter(key, p, s)
	var c *contender // from the first refusal on
	defer func() {
		c.leaveField()
		if e := l.queue.leave(ln, p, lock); e != nil {
			l.surrender(e)
		}
	}()
	if s.fair {
		c = c.or(l, s, p, key)
		c.takePlace(name)
	}
	var failure *QuorumError
	first := everyNode
	for try := 0; ; try++ {
		gift, rest := l.queue.await(ctx, ln, p, l.closed)
		if gift != nil {
			if lock = l.inherit(ctx, s, gift); lock != nil {
				return lock, nil
			}
		}
		if s.fair {
			c.awaitTurn(ctx, ln)
			first = everyNode
		} else if rest > 0 {
			l.pause(ctx, p, rest.Sub(s.clock.Now()))
			c = c.or(l, s, p, key)
			first = c.node
		}
		if err := l.interrupted(ctx, name); err != nil {
			return nil, because(ctx, err, failure)
		}
		lock, err = l.attempt(ctx, told, s, name, key, first)
		if err == nil {
			l.queue.joinTurn(ln, lock)
			return lock, nil
		}
		l.queue.loseTurn(ln)
		var failed *QuorumError
		if !errors.As(err, &failed) || !s.again(try, failed) {
			return nil, err
		}
		if first == everyNode {
			failure = failed // the other kind knows of one node only
		}
		if failed.Err != errStale {
			c = c.or(l, s, p, key)
			c.lost(first, failed)
			first = c.rest(ctx, ln, s.delay(try, failed))
		}
	}
}

// askInTurn asks one node, and then the others unless it has refused. False
// means that it has, and that nothing was taken.
func (r *round) askInTurn(ctx context.Context, s *settings, first int) bool {
	var alone nodeSet
	alone.add(first)
	all := allNodes(len(r.slots))
	r.without, r.need = all&^alone, alone
	r.ask()
	r.wait(ctx, s.timeout(), repliedNeeded)
	r.mu.Lock()
	refused := r.slots[first].reply.Outcome == Refused
	r.mu.Unlock()
	if refused {
		return false
	}
	if ctx.Err() == nil {
		r.without = alone
		r.ask()
	}
	return true
}

// A contender is a caller that competes with other processes. Its methods are for
// its own goroutine, but for hint and Receive.
type contender struct {
	locker   *Locker
	settings *settings
	parker   *parker
	key      string

	node   int     // that is asked first
	bad    nodeSet // nodes that are of no use for that
	stop   func()  // of the Watch at node; nil: there is none
	place  *place  // for those who want to be fair
	splits int     // tries in a row that took the first node, and too few others
	eager  bool    // hints are followed

	notBefore clock.Instant // they are

	questions atomic.Int64 // so far
	hinted    atomic.Bool  // the key may have changed
	free      atomic.Bool  // it was not there at the last look
	failed    atomic.Int64 // number of the last look that failed
	left      atomic.Int64 // of the holder's TTL in nanoseconds, by the last look; zero: not known
}

// or makes a contender if there is none.
func (c *contender) or(l *Locker, s *settings, p *parker, key string) *contender {
	if c != nil {
		return c
	}
	c = &contender{locker: l, settings: s, parker: p, key: key}
	c.node = c.choose()
	c.questions.Store(1) // zero has not failed
	return c
}

// choose returns the node that is to be asked first: by lot, but the same in all
// processes, whatever order they list the nodes in.
func (c *contender) choose() (best int) {
	if c.bad == allNodes(len(c.locker.nodes)) {
		c.bad = 0
	}
	var most uint64
	for i, n := range c.locker.nodes {
		h := fnv.New64a()
		h.Write([]byte(n.String()))
		h.Write([]byte(c.key))
		if lot := h.Sum64(); !c.bad.has(i) && lot >= most {
			best, most = i, lot
		}
	}
	return best
}

// leaveField gives back what waiting takes.
func (c *contender) leaveField() {
	if c != nil {
		c.unwatch()
		c.place.giveBack()
	}
}

func (c *contender) unwatch() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
	c.place.unwatch()
}

func (c *contender) hint() {
	c.hinted.Store(true)
	c.parker.wake()
}

// Receive takes the reply to a look.
func (c *contender) Receive(number int, reply Reply) {
	switch reply.Outcome {
	case Granted:
		c.free.Store(true)
	case Refused:
		c.left.Store(int64(max(reply.TTL, 0)))
	default:
		c.failed.Store(int64(number))
	}
	c.parker.wake()
}

// haste is how soon after a hint that was followed in vain the next is. Where
// another process hands a lock over among its own callers, each time makes a hint, and a turn
// lasts for five times as long.
const haste = time.Millisecond

// lost draws the conclusions from a try.
//
// Hints are followed at once only while that leads somewhere: contenders who take
// nodes from each other make hints for each other. And a node that granted where
// too many others refused does not know the holder, so another is asked first
// from now on. As many nodes as a holder can do without may be of that kind.
func (c *contender) lost(first int, failed *QuorumError) {
	c.notBefore = 0
	if failed.Votes == 0 {
		c.splits = 0
		if first == c.node {
			c.notBefore = c.settings.clock.Now().Add(haste + c.settings.jitter(haste))
		}
	} else if first == c.node {
		c.splits++
		c.leave()
	}
	c.eager = failed.Err == ErrHeld && c.splits <= failed.Nodes-failed.Quorum
}

// leave turns to another node.
func (c *contender) leave() {
	c.unwatch()
	c.bad.add(c.node)
	c.node = c.choose()
	c.failed.Store(0)
}

// lookOut asks the node to hint when the key changes. That it has not changed
// since the refusal is part of the question.
func (c *contender) lookOut() {
	if c.hasFailed() {
		c.leave()
	}
	node := c.locker.nodes[c.node]
	if w, ok := node.(Watchable); ok && c.stop == nil {
		c.stop = w.Watch(c.key, c.hint)
	}
	number := c.questions.Add(1)
	c.left.Store(0)
	look := &Request{Op: OpWatch, Key: c.key, Timeout: c.settings.timeout()}
	if node.Submit(look, int(number), c) != nil {
		c.fail()
	}
}

// fail notes that the node is of no use, until the next is asked.
func (c *contender) fail() { c.failed.Store(c.questions.Load()) }

// hasFailed reports whether the last look came to nothing.
func (c *contender) hasFailed() bool { return c.failed.Load() == c.questions.Load() }

// rest sleeps until there is reason to try again, for d at most, and returns the
// node to ask first then.
func (c *contender) rest(ctx context.Context, ln *line, d time.Duration) (first int) {
	l, clock := c.locker, c.settings.clock
	c.hinted.Store(false)
	c.free.Store(false)
	if c.eager {
		c.lookOut()
	}
	now := clock.Now()
	end := c.place.restEnd(now, now.Add(d))
	for armed := end.Add(1); ; {
		if ctx.Err() != nil || isDone(l.closed) {
			return everyNode
		}
		if l.queue.hasNews(ln) {
			return everyNode // right behind our own release
		}
		now = clock.Now()
		if left := time.Duration(c.left.Swap(0)); left > 0 {
			end = min(end, now.Add(c.settings.beyond(left)))
		}
		first, due := everyNode, end
		if c.eager && (c.hinted.Load() || c.free.Load()) {
			first, due = c.node, min(end, c.notBefore)
		}
		if now >= due {
			return first
		}
		if due < armed {
			armed = due
			c.parker.timer.Reset(due.Sub(now))
		}
		c.parker.sleep(ctx, l.closed)
	}
}
