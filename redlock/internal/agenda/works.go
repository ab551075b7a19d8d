package agenda

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// works are what is to be done for items. One goroutine does it, and lives while there are any.
type works[T Item] struct {
	parkers *park.Lot
	all     func() []T
	worker  sync.WaitGroup

	mu      lockorder.Mutex[lockorder.Chores]
	waiting []job[T]   // guarded by mu, as all that follow
	doubted quorum.Set // nodes that may have lost anything
	working bool       // the goroutine runs
	stopped bool
}

// A job is one thing to do.
type job[T Item] struct {
	item T
	work Work
}

// Add has a work done.
func (a *Agenda[T]) Add(item T, w Work) { a.works.add(job[T]{item, w}) }

// Doubt has all items told that node i may have lost what it had.
func (a *Agenda[T]) Doubt(i int) {
	c := &a.works
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.doubted.Add(i)
		c.start()
	}
}

// Stop is called when the nodes are about to be closed. It returns when all works are done, or known
// to be in vain.
func (a *Agenda[T]) Stop() {
	c := &a.works
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.worker.Wait()
}

func (c *works[T]) add(more ...job[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, more...)
	c.start()
}

// start starts the goroutine if it does not run. The works must be locked.
func (c *works[T]) start() {
	if !c.working {
		c.working = true
		c.worker.Go(c.run)
	}
}

// A rescan tells all items of nodes that may have lost what they had. What happens meanwhile is for the
// next one.
type rescan[T Item] struct {
	nodes, next quorum.Set
	left        []T
}

func (s *rescan[T]) isUnderWay() bool { return len(s.left) > 0 || s.next != 0 }

// step tells up to batchSize of them, and reports whether there were as many.
func (s *rescan[T]) step(all func() []T) bool {
	if len(s.left) == 0 && s.next != 0 {
		s.nodes, s.next, s.left = s.next, 0, all()
	}
	part := s.left[:min(batchSize, len(s.left))]
	for _, item := range part {
		for i := range quorum.MaxNodes {
			if s.nodes.Has(i) {
				item.Doubt(i)
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

// batchSize is how many works are done without letting others run. Their requests travel together.
const batchSize = 64

// run does what waits.
func (c *works[T]) run() {
	p := c.parkers.Get()
	defer c.parkers.Put(p)
	began := c.parkers.Clock.Now()
	rest := func() {
		p.WakeAfter(timeSlice)
		p.Sleep(context.Background(), nil)
		began = c.parkers.Clock.Now()
	}
	isLate := func() bool { return c.parkers.Clock.Now().Sub(began) > timeSlice }
	var looks []job[T]
	var sweep rescan[T]
	for {
		batch, doubted, stopped := c.take(len(looks) > 0 || sweep.isUnderWay())
		sweep.next |= doubted
		if len(batch)+len(looks) == 0 && !sweep.isUnderWay() {
			return
		}
		for i, j := range batch {
			if j.work == Look {
				looks = append(looks, j)
				continue
			}
			if isLate() && !stopped && !j.item.IsUrgent(j.work) {
				rest()
			}
			j.item.Do(j.work, stopped)
			if i%batchSize == batchSize-1 {
				runtime.Gosched() // to the timer, and to what sends the requests
				stopped = c.isStopped()
			}
		}
		if sweep.step(c.all) && isLate() && !stopped {
			rest()
		}
		// A thousand looks in a row would keep callers' requests waiting at the servers. All other
		// work goes before.
		now := looks[:min(batchSize, len(looks))]
		for _, j := range now {
			j.item.Do(j.work, stopped)
		}
		runtime.Gosched()
		if looks = looks[len(now):]; len(now) == batchSize && !stopped {
			rest()
		}
	}
}

// take returns what waits, the nodes that are doubted, and whether the nodes are about to be closed.
// The goroutine ends if nothing waits and it has nothing left to do.
func (c *works[T]) take(busy bool) (batch []job[T], doubted quorum.Set, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.waiting = c.waiting, nil
	doubted, c.doubted = c.doubted, 0
	c.working = busy || len(batch) > 0 || doubted != 0
	return batch, doubted, c.stopped
}

func (c *works[T]) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}
