package load

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// heldLocks are held locks that the library renews. They are allocated before the library opens, so
// only the library makes the heap grow.
type heldLocks struct {
	names []string
	locks []subject.Lock // nil: not acquired
	rec   *recorder
}

func newHeldLocks(j Job) *heldLocks {
	first, end := j.share(j.Load.Held)
	return &heldLocks{j.names(first, end), make([]subject.Lock, end-first), newRecorder(time.Now(), record.Load{Duration: 24 * time.Hour})}
}

// each calls f for all locks.
func (h *heldLocks) each(ctx context.Context, f func(i int)) {
	var next atomic.Int64
	all(ctx, 64, func(int) {
		for i := int(next.Add(1)) - 1; i < len(h.locks); i = int(next.Add(1)) - 1 {
			f(i)
		}
	})
}

// run measures the locks. Acquiring the locks is its warm-up. before is the size of the heap before
// the library was opened.
func (h *heldLocks) run(ctx context.Context, c *client, library subject.Client, before int64) (result, error) {
	held := record.HeldLocks{Wanted: len(h.names), For: c.job.Load.Duration}
	limit := connectLimit + time.Duration(len(h.names))*time.Millisecond/5
	// All locks share one context, because a lock keeps the values of its caller's context, and
	// their memory would count.
	acquiring, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	h.each(acquiring, func(i int) {
		lock, err := library.Acquire(acquiring, h.names[i])
		if err != nil {
			h.rec.ended(0, time.Now(), err)
			return
		}
		h.locks[i] = lock
	})
	held.Bytes = heap() - before

	start, err := c.ready()
	if err != nil {
		return result{}, err
	}
	end := start.Add(held.For)
	if held.CPU, _, err = measure(ctx, start, end, func() { SleepUntil(ctx, end) }); err != nil {
		return result{}, err
	}

	releasing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var acquired, lost atomic.Int64
	h.each(releasing, func(i int) {
		if h.locks[i] == nil {
			return
		}
		acquired.Add(1)
		gone := h.locks[i].Until().IsZero()
		err := h.locks[i].Release(releasing)
		if gone {
			lost.Add(1)
			err = errors.New("lost")
		}
		h.rec.ended(0, time.Now(), err)
	})
	held.Acquired, held.Lost = int(acquired.Load()), int(lost.Load())
	r := h.rec.close()
	r.Trial.Held = &held
	return r, nil
}
