package load

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// holdTrial is a trial of locks that are held all the time while the library renews them. Acquiring
// them is its warm-up: the trial is the time in which they are held.
func (c *client) holdTrial(ctx context.Context, spec subject.Spec, cfg subject.Config) (message, error) {
	load := c.job.Load
	h := newHeldLocks(numbered(spec.Name, load.Length, c.job.share(load.Held)), cfg.Callers, c.scrub)
	before := heap()
	client, closeClient, err := c.open(ctx, spec, cfg)
	if err != nil {
		return message{}, err
	}
	defer closeClient()
	h.acquire(ctx, client)
	h.trial.Held.Bytes = heap() - before

	start, err := c.ready(ctx)
	if err != nil {
		return message{}, err
	}
	end := start.Add(load.Duration)
	measured, err := c.measure(ctx, start, end, func() { waitUntil(ctx, end) })
	if err != nil {
		return message{}, err
	}
	h.trial.Held.For, h.trial.Held.CPU = load.Duration, measured.cpu
	h.release()
	return message{Trial: &h.trial}, nil
}

// heldLocks are made before the heap is looked at for the first time, so that what it grows by is
// the library's.
type heldLocks struct {
	names   []string
	locks   []subject.Lock // nil: not acquired
	workers int
	scrub   endpoint.Scrubber

	mu     sync.Mutex
	closed bool // what is late does not count
	trial  record.Trial
}

func newHeldLocks(names []string, workers int, scrub endpoint.Scrubber) *heldLocks {
	h := &heldLocks{names: names, locks: make([]subject.Lock, len(names)), workers: workers, scrub: scrub}
	h.trial = record.Trial{Held: &record.HeldLocks{Wanted: len(names)}, Outcomes: map[string]int64{}, Errors: map[string]int64{}}
	return h
}

// each calls f for all locks, some at a time, and returns how many of those calls did not return
// even after cancel.
func (h *heldLocks) each(ctx context.Context, cancel func(), f func(i int)) (stuck int) {
	var next atomic.Int64
	return start(h.workers, func(int) {
		for i := int(next.Add(1)) - 1; i < len(h.locks); i = int(next.Add(1)) - 1 {
			f(i)
		}
	}).wait(ctx, cancel)
}

// limit bounds a call for each of the locks, and for all of them together.
func (h *heldLocks) limit() time.Duration {
	return max(connectLimit, time.Duration(len(h.locks))*time.Millisecond/5)
}

// acquire uses one context for all acquisitions, because a lock keeps its caller's context for the
// values, and one for each would be the caller's memory.
func (h *heldLocks) acquire(ctx context.Context, client subject.Client) {
	ctx, cancel := context.WithTimeout(ctx, h.limit())
	defer cancel()
	h.each(ctx, func() {}, func(i int) {
		lock, err := client.Acquire(ctx, h.names[i])
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.failed(err)
			return
		}
		h.locks[i] = lock
		h.trial.Held.Acquired++
	})
}

// release gives all back, and counts those that were lost. A lock is lost if Until is zero, which it
// stays.
func (h *heldLocks) release() {
	ctx, cancel := context.WithTimeout(context.Background(), h.limit())
	defer cancel()
	stuck := h.each(ctx, cancel, func(i int) {
		if h.locks[i] == nil {
			return
		}
		lost := h.locks[i].Until().IsZero()
		err := h.locks[i].Release(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case h.closed:
		case lost:
			h.trial.Held.Lost++
			h.failed(errors.New("lost"))
		case err != nil:
			h.failed(err)
		default:
			h.trial.Outcomes[record.OK]++
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.trial.Cycles = h.trial.Outcomes[record.OK]
	if stuck > 0 {
		count(h.trial.Errors, "a release was still in the library # s after it began", int64(stuck))
		h.trial.Outcomes[record.UnderWay] += int64(stuck)
	}
}

// failed counts a lock that was not acquired, was lost, or was not released.
func (h *heldLocks) failed(err error) {
	h.trial.Outcomes[record.Failed]++
	count(h.trial.Errors, group(h.scrub.Clean(err.Error())), 1)
}

// heap is the memory in use after all garbage is gone.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools kept alive through the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
