package redlock

import (
	"container/heap"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// The scheduler of a Locker has every held session, with the next moment at which something
// is due for it. A goroutine for each session would cost its stack besides.
//
// Many locks can be due at one moment, and a deadline must not wait for another
// lock's requests. So the goroutine of the timer does no more than it must: it
// ends the contexts of locks whose time is over, and leaves the rest, which is
// work at the nodes, to another goroutine.
type scheduler struct {
	clock clock.Clock

	running  lockorder.Mutex[lockorder.Running] // held while due locks are looked at
	mu       lockorder.Mutex[lockorder.Scheduler]
	sessions byTime
	timer    clock.Timer // made with the first lock
	armed    clock.Instant
	closed   bool

	workQueue workQueue
}

// put enters the lock, or moves it. After close it reports false.
func (a *scheduler) put(s *session, at clock.Instant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	if s.index < 0 {
		a.sessions.Push(s)
	}
	a.sessions[s.index].at = at
	heap.Fix(&a.sessions, int(s.index))
	a.arm()
	return true
}

func (a *scheduler) remove(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.index >= 0 {
		heap.Remove(&a.sessions, int(s.index))
	}
	// The timer stays as it is, unless it is far off: to fire for nothing is
	// cheaper than to be set anew at every release.
	if len(a.sessions) == 0 && s.settings.ttl > time.Minute && a.timer != nil {
		a.timer.Stop()
		a.armed = 0
	}
}

// arm sets the timer if the first lock is due before it.
func (a *scheduler) arm() {
	if len(a.sessions) == 0 {
		return
	}
	first := a.sessions[0].at
	if a.armed != 0 && a.armed <= first {
		return
	}
	a.armed = first
	d := first.Sub(a.clock.Now())
	if a.timer == nil {
		a.timer = a.clock.AfterFunc(d, a.run)
	} else {
		a.timer.Reset(d)
	}
}

// run is called by the timer.
func (a *scheduler) run() {
	a.running.Lock()
	defer a.running.Unlock()
	var left []workItem
	for {
		now := a.clock.Now()
		left = left[:0]
		for s := a.next(now); s != nil; s = a.next(now) {
			if c := s.due(now); c != nothing { // otherwise it is scheduled again
				left = append(left, workItem{s, c})
			}
		}
		if len(left) == 0 {
			return
		}
		a.workQueue.add(left...)
	}
}

// next takes out a lock that is due by now, or sets the timer and returns nil.
func (a *scheduler) next(now clock.Instant) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = 0
	if a.closed {
		return nil
	}
	if len(a.sessions) > 0 && a.sessions[0].at <= now {
		return heap.Pop(&a.sessions).(*session)
	}
	a.arm()
	return nil
}

// all returns the sessions that f is true of.
func (a *scheduler) all(f func(*session) bool) (sessions []*session) {
	a.running.Lock() // a run under way may be holding one lock
	defer a.running.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.sessions {
		if f(e.session) {
			sessions = append(sessions, e.session)
		}
	}
	return sessions
}

// close ends the scheduler and returns the locks that were in it.
func (a *scheduler) close() []*session {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	a.running.Lock() // a run under way may be holding one lock
	defer a.running.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	var sessions []*session
	for _, e := range a.sessions {
		e.session.index = -1
		sessions = append(sessions, e.session)
	}
	a.sessions = nil
	return sessions
}

// byTime is a heap of locks, the next due first.
type byTime []entry

// An entry has the time at hand: to look for it at the locks takes most of the time
// where there are many.
type entry struct {
	at      clock.Instant
	session *session
}

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].at < h[j].at }
func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].session.index, h[j].session.index = int32(i), int32(j)
}

func (h *byTime) Push(x any) {
	s := x.(*session)
	s.index = int32(len(*h))
	*h = append(*h, entry{session: s})
}

func (h *byTime) Pop() any {
	old := *h
	s := old[len(old)-1].session
	old[len(old)-1] = entry{}
	*h = old[:len(old)-1]
	if len(*h) == 0 && cap(old) > maxIdle {
		*h = nil // a burst is over
	}
	s.index = -1
	return s
}

// A workQueue is what is to be done for locks at the nodes. One goroutine does it,
// in their order, and lives while there are any.
type workQueue struct {
	mu      lockorder.Mutex[lockorder.Chores]
	waiting []workItem
	doubted quorum.Set // nodes at which any key may have changed
	working bool       // the goroutine runs
	stopped bool
	worker  sync.WaitGroup
	parkers *park.Lot
	held    func() []*session // returns all
}

// A workItem is one thing to do.
type workItem struct {
	session *session
	kind    workKind
}

type workKind uint8

const (
	nothing     workKind = iota
	renewal              // of a lock that is held
	lookAtNodes          // that hold one: see holdWatch
	giveBack             // of one that is lost
)

func (c *workQueue) add(more ...workItem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, more...)
	c.start()
}

// doubt has all sessions told that node i may have lost their keys.
func (c *workQueue) doubt(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.doubted.Add(i)
		c.start()
	}
}

// start starts the goroutine if it does not run. The workQueue must be locked.
func (c *workQueue) start() {
	if !c.working {
		c.working = true
		c.worker.Go(c.work)
	}
}

// A rescan tells all sessions of nodes that may have lost their keys. What happens meanwhile is for the
// next one.
type rescan struct {
	nodes, next quorum.Set
	left        []*session
}

func (s *rescan) isUnderWay() bool { return len(s.left) > 0 || s.next != 0 }

// step tells up to batchSize of them, and reports whether there were as many.
func (s *rescan) step(held func() []*session) bool {
	if len(s.left) == 0 && s.next != 0 {
		s.nodes, s.next, s.left = s.next, 0, held()
	}
	part := s.left[:min(batchSize, len(s.left))]
	for _, session := range part {
		for i := range quorum.MaxNodes {
			if s.nodes.Has(i) {
				session.hinted(i)
			}
		}
	}
	s.left = s.left[len(part):]
	return len(part) == batchSize
}

// timeSlice: work that is not urgent is done for at most so long in a row, and followed by
// a break as long. Where a majority of nodes is down there is more to retry and to give
// back than the processors can do, and deadlines would wait for a processor.
const timeSlice = time.Millisecond

// batchSize is how many items are done without letting others run. Their requests travel together.
const batchSize = 64

// work does what waits.
func (c *workQueue) work() {
	p := c.parkers.Get()
	defer c.parkers.Put(p)
	began := c.parkers.Clock.Now()
	rest := func() {
		p.WakeAfter(timeSlice)
		p.Sleep(context.Background(), nil)
		began = c.parkers.Clock.Now()
	}
	var looks []workItem
	var sweep rescan
	for {
		batch, doubted, stopped := c.take(len(looks) > 0 || sweep.isUnderWay())
		sweep.next |= doubted
		if len(batch)+len(looks) == 0 && !sweep.isUnderWay() {
			return
		}
		for i, job := range batch {
			if job.kind == lookAtNodes {
				looks = append(looks, job)
				continue
			}
			if c.parkers.Clock.Now().Sub(began) > timeSlice && !stopped && !job.urgent() {
				rest()
			}
			job.do(stopped)
			if i%batchSize == batchSize-1 {
				runtime.Gosched() // to the timer, and to what sends the requests
				stopped = c.isStopped()
			}
		}
		if sweep.step(c.held) && c.parkers.Clock.Now().Sub(began) > timeSlice && !stopped {
			rest()
		}
		// A thousand looks in a row would keep callers' requests waiting at the servers. All other
		// work goes before.
		now := looks[:min(batchSize, len(looks))]
		for _, job := range now {
			job.do(stopped)
		}
		runtime.Gosched()
		if looks = looks[len(now):]; len(now) == batchSize && !stopped {
			rest()
		}
	}
}

// take returns what waits, the nodes that are doubted, and whether the nodes are about to be closed.
// The goroutine ends if nothing waits and it has nothing left to do.
func (c *workQueue) take(busy bool) (batch []workItem, doubted quorum.Set, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.waiting = c.waiting, nil
	doubted, c.doubted = c.doubted, 0
	c.working = busy || len(batch) > 0 || doubted != 0
	return batch, doubted, c.stopped
}

func (c *workQueue) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// urgent reports whether the item is the first renewal that is due, by which a lock
// is kept while all is well.
func (c workItem) urgent() bool {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.kind == renewal && c.session.lease.IsWell()
}

// do does it, but asks no node any more if that is in vain.
func (c workItem) do(inVain bool) {
	switch s := c.session; {
	case c.kind == giveBack && inVain:
		s.abandon()
	case c.kind == giveBack:
		s.giveBack(s.settings.clock.Now())
	case c.kind == renewal && !inVain:
		s.renew()
	case c.kind == lookAtNodes && !inVain:
		s.look()
	}
}

// stop is called when the nodes are about to be closed. It returns when the
// goroutine has ended.
func (c *workQueue) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.worker.Wait()
}
