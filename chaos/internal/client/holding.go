package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/redlock"
)

// A holding is one acquisition, and the work that is done under its lock.
type holding struct {
	id     history.Event // Who, Op and Name of all that is told
	client *client
	chance *rand.Rand
	lock   *redlock.Lock
	until  int64 // the last deadline told
}

func (h *holding) tell(kind history.Kind, text string) {
	e := h.id
	e.At, e.Kind, e.Text = history.Now(), kind, text
	h.client.log.Add(e)
}

// deadline is when the lock ends as far as this process can know, or zero if it
// has ended. The clock is read first: a pause before the second reading makes
// the deadline an earlier one.
func (h *holding) deadline() int64 {
	now := history.Now()
	if left := h.lock.Remaining(); left > 0 {
		return now + int64(left)
	}
	return 0
}

func (h *holding) granted(lock *redlock.Lock) {
	h.lock = lock
	h.until = h.deadline()
	e := h.id
	e.Kind, e.Token, e.Votes, e.Until = history.Granted, lock.Fence(), lock.Votes(), h.until
	e.At = history.Now()
	h.client.log.Add(e)
}

// look reports whether the lock is held, and tells if it lasts longer than told
// before.
func (h *holding) look() bool {
	until := h.deadline()
	// Two readings differ by the time between them; a renewal adds a third of the TTL.
	if until > h.until+int64(h.client.TTL/100) {
		h.until = until
		e := h.id
		e.At, e.Kind, e.Until = history.Now(), history.Extended, until
		h.client.log.Add(e)
	}
	return until > 0
}

// ended tells that the lock was lost, if it was.
func (h *holding) ended() {
	if cause := context.Cause(h.lock.Context()); errors.Is(cause, redlock.ErrLost) {
		h.tell(history.Lost, cause.Error())
	}
}

// span draws how long the lock is needed. Much of the work is one write, so that
// locks change hands often; some outlasts a lease that is not renewed.
func (h *holding) span() time.Duration {
	work := h.client.Work
	switch n := h.chance.IntN(20); {
	case n < 12:
		return work[0]
	case n == 12:
		return between(h.chance, work[1], 2*h.client.TTL)
	}
	return between(h.chance, work[0], work[1])
}

// work looks at the lock, prepares something, and writes it, again and again.
func (h *holding) work(ctx context.Context) error {
	span := h.span()
	for enough := time.Now().Add(span); h.look(); {
		sleep(ctx, between(h.chance, 0, 50*time.Millisecond))
		// A pause somewhere here is what fencing is for.
		if _, err := h.client.register.Write(h.id.Name, h.lock.Fence(), h.id.Who, h.id.Op); err != nil {
			return err
		}
		if ctx.Err() != nil || time.Now().After(enough) {
			break
		}
	}
	return nil
}
