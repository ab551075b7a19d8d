package load

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// holdTrial is a trial of locks that are held all the time while the library renews them. Acquiring
// them is its warm-up: the trial is the time in which they are held.
func (c *client) holdTrial(ctx context.Context, spec subject.Spec, cfg subject.Config) (message, error) {
	load := c.job.Load
	names := c.job.numbered(c.job.share(load.Held))
	h := heldLocks{names: names, locks: make([]subject.Lock, len(names)), workers: cfg.Callers,
		rec: newRecorder(time.Now(), record.Load{}, c.scrub)}
	h.rec.end = h.rec.start.Add(24 * time.Hour) // after the last release
	before := heap()
	client, closeClient, err := c.open(ctx, spec, cfg)
	if err != nil {
		return message{}, err
	}
	defer closeClient()
	h.acquire(ctx, client)
	bytes := heap() - before

	start, err := c.ready(ctx)
	if err != nil {
		return message{}, err
	}
	end := start.Add(load.Duration)
	used, err := c.measure(ctx, start, end, func() { waitUntil(ctx, end) })
	if err != nil {
		return message{}, err
	}
	result := h.rec.close(metered{}, h.release())
	result.Trial.Held = &record.HeldLocks{Wanted: len(names), Acquired: int(h.acquired.Load()), Lost: int(h.lost.Load()),
		Bytes: bytes, CPU: used.cpu, For: load.Duration}
	return result, nil
}

// heldLocks are made before the heap is looked at for the first time, so that what it grows by is
// the library's.
type heldLocks struct {
	names          []string
	locks          []subject.Lock // nil: not acquired
	workers        int
	acquired, lost atomic.Int64
	rec            *recorder
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
		if err != nil {
			h.rec.ended(0, time.Now(), err)
			return
		}
		h.locks[i] = lock
		h.acquired.Add(1)
	})
}

// release gives all back, and counts those that were lost. A lock is lost if Until is zero, which it
// stays.
func (h *heldLocks) release() (stuck int) {
	ctx, cancel := context.WithTimeout(context.Background(), h.limit())
	defer cancel()
	return h.each(ctx, cancel, func(i int) {
		if h.locks[i] == nil {
			return
		}
		lost := h.locks[i].Until().IsZero()
		err := h.locks[i].Release(ctx)
		if lost {
			h.lost.Add(1)
			err = errors.New("lost")
		}
		h.rec.ended(0, time.Now(), err)
	})
}

// heap is the memory in use after all garbage is gone.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools kept alive through the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
