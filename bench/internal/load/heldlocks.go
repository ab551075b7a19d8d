package load

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// holdTrial is a trial of locks that are held all the time while the library renews them. Acquiring
// them is its warm-up: the trial is the time in which they are held.
func (c *client) holdTrial(ctx context.Context, spec subject.Spec, cfg subject.Config) error {
	load := c.Job.Load
	if !spec.Renews {
		return fmt.Errorf("load: %s does not renew its locks by itself; leave it out of this scenario", spec.Name)
	}
	h := newHeldLocks(numbered(spec.Name, load.Length, c.Job.share(load.Held, c.Process)), cfg.Callers, c.scrub)
	before := heap()
	client, closeClient, err := c.open(ctx, spec, cfg)
	if err != nil {
		return err
	}
	defer closeClient()
	defer h.release()
	h.acquire(ctx, client, load.Patience)
	h.figures.Bytes = heap() - before

	start, err := c.ready(ctx)
	if err != nil {
		return err
	}
	meter := c.meter()
	if err := meter.start(ctx, start); err != nil {
		return err
	}
	until := start.Add(load.Duration)
	for part, now := 0, start; now.Before(until) && ctx.Err() == nil; now = time.Now() {
		waitUntil(ctx, earlier(now.Add(reportEvery), until))
		h.countLosses(part, lookParts)
		part = (part + 1) % lookParts
		progress := Progress{Elapsed: time.Since(start), Cycles: int64(h.figures.Acquired),
			Failed: int64(h.figures.Lost)}
		if err := c.send(message{Progress: &progress}); err != nil {
			return err
		}
	}
	h.countLosses(0, 1)
	var res result
	if err := meter.stop(&res.Trial); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	h.figures.For, h.figures.CPU = load.Duration, res.Trial.CPU
	h.release()
	h.fill(&res.Trial)
	return c.send(message{Result: &res})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// heldLocks are made before the heap is looked at for the first time, so that what it grows by is
// the library's.
type heldLocks struct {
	names   []string
	locks   []subject.Lock // nil: not acquired
	lost    []bool
	workers int
	scrub   scrubber
	figures record.HeldLocks
	once    sync.Once // of release

	mu       sync.Mutex
	closed   bool
	acquired record.Histogram
	released record.Histogram
	outcomes map[string]int64
	errors   map[string]int64
}

func newHeldLocks(names []string, workers int, scrub scrubber) *heldLocks {
	h := &heldLocks{
		names: names, locks: make([]subject.Lock, len(names)), lost: make([]bool, len(names)),
		workers: workers, scrub: scrub, figures: record.HeldLocks{Wanted: len(names)},
		outcomes: map[string]int64{}, errors: map[string]int64{},
	}
	h.acquired.Merge(record.Coarse())
	return h
}

// each calls f for all locks, some at a time, and returns how many of those calls did not return
// even after cancel.
func (h *heldLocks) each(ctx context.Context, cancel func(), f func(i int)) (stuck int) {
	var next atomic.Int64
	calls := newGroup(h.workers)
	for range h.workers {
		go func() {
			defer calls.done()
			for i := int(next.Add(1)) - 1; i < len(h.locks); i = int(next.Add(1)) - 1 {
				f(i)
			}
		}()
	}
	select {
	case <-calls.all:
		return 0
	case <-ctx.Done():
		return calls.wait(cancel)
	}
}

func (h *heldLocks) acquire(ctx context.Context, client subject.Client, limit time.Duration) {
	if limit == 0 {
		limit = connectLimit
	}
	patience := patience{ctx: ctx, limit: limit}
	defer patience.end()
	h.each(ctx, func() {}, func(i int) {
		ctx := patience.context()
		began := time.Now()
		lock, err := client.Acquire(ctx, h.names[i])
		took := time.Since(began)
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.failed(subject.Outcome(err), err)
			return
		}
		h.acquired.Add(took)
		h.locks[i] = lock
		h.figures.Acquired++
	})
}

// patience makes contexts that end after the limit, or twice that. Acquisitions share them, because a
// lock keeps its caller's context for the values, and one for each would be the caller's memory.
type patience struct {
	ctx    context.Context
	limit  time.Duration
	mu     sync.Mutex
	now    context.Context
	until  time.Time
	cancel []func()
}

func (p *patience) context() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Until(p.until) < p.limit {
		var cancel func()
		p.until = time.Now().Add(2 * p.limit)
		p.now, cancel = context.WithDeadline(p.ctx, p.until)
		p.cancel = append(p.cancel, cancel)
	}
	return p.now
}

// end is called when no acquisition waits any more.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.cancel {
		cancel()
	}
}

// lookParts is in how many parts the locks are looked at while they are held: to look at a million
// of them with each report took a fifth of the client's CPU time.
const lookParts = 16

// countLosses counts the lost ones among every so many locks, from first on. A lock is lost if Until
// is zero, or has passed where the library has no other way to tell; a lapse of such a library that a
// late renewal ends between two looks is not seen.
func (h *heldLocks) countLosses(first, every int) {
	for i := first; i < len(h.locks); i += every {
		lock := h.locks[i]
		if lock == nil || h.lost[i] {
			continue
		}
		until := lock.Until()
		if h.lost[i] = until.IsZero() || time.Now().After(until) && lock.Lost() == nil; h.lost[i] {
			h.figures.Lost++
		}
	}
}

// release gives all back, once.
func (h *heldLocks) release() {
	h.once.Do(func() {
		limit := max(connectLimit, time.Duration(len(h.locks))*time.Millisecond/5)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		stuck := h.each(ctx, cancel, func(i int) {
			if h.locks[i] == nil {
				return
			}
			began := time.Now()
			err := h.locks[i].Release(ctx)
			took := time.Since(began)
			h.mu.Lock()
			defer h.mu.Unlock()
			switch {
			case h.closed:
			case h.lost[i]:
				h.failed(record.Lost, err)
			case err != nil:
				h.failed(subject.Outcome(err), err)
			default:
				h.released.Add(took)
				h.outcomes[record.OK]++
			}
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		h.closed = true
		if stuck > 0 {
			count(h.errors, "a release was still in the library # s after it began", int64(stuck))
		}
		left := int64(h.figures.Wanted)
		for _, n := range h.outcomes {
			left -= n
		}
		if left > 0 {
			h.outcomes[record.UnderWay] = left
		}
	})
}

func (h *heldLocks) failed(outcome string, err error) {
	h.outcomes[outcome]++
	if err != nil {
		count(h.errors, h.scrub.group(err.Error()), 1)
	}
}

func (h *heldLocks) fill(t *record.Trial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Held, t.Cycles = &h.figures, h.outcomes[record.OK]
	t.Acquire, t.Release, t.Outcomes, t.Errors = h.acquired, h.released, h.outcomes, h.errors
}

// heap is the memory in use after all garbage is gone.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools kept alive through the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
