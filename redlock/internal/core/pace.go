package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A past is the memory of a Key from one contest to the next.
type past struct {
	contendedAt clock.Instant // when another process last wanted the key; zero if never
	outage      clock.Instant // start of the current outage; zero without one
	noOrder     clock.Instant // no node is asked to keep the queue before this time
	silent      quorum.Set    // nodes that did not answer in time, and have not answered since
	pace        time.Duration // response time of the slowest node that answers; zero if unknown
}

// sooner sets at to t if that is earlier. Zero means never.
func sooner(at *clock.Instant, t clock.Instant) {
	if t > 0 && (*at == 0 || t < *at) {
		*at = t
	}
}

// metStays is the time for which a key remembers that another process wanted it.
const metStays = time.Second

func (p *past) isMet(now clock.Instant) bool {
	return p != nil && p.contendedAt > 0 && now.Sub(p.contendedAt) < metStays
}

// minAnswerLimit is the shortest wait for a node before another one is asked. A round trip takes
// less on one network, but a busy machine may see the answer this late.
const minAnswerLimit = 5 * time.Millisecond

// answerLimit is the wait for a node that can be replaced. It never decides who holds a lock.
func (p *past) answerLimit(limit time.Duration) time.Duration {
	if p == nil || p.pace == 0 {
		return limit
	}
	return min(max(4*p.pace, minAnswerLimit), limit)
}

// answered records a response time. Faster answers reduce the pace slowly.
func (p *past) answered(after time.Duration) { p.pace = max(after, p.pace-p.pace/8) }

const (
	longest = 200 * time.Millisecond // longest wait between two checks without a hint
	hintGap = time.Millisecond
)

// Delay returns the pause after a failed try; the first has number 0. Half of it is random, so that
// processes that split the votes do not collide again. If the key that blocks the lock expires
// sooner, the pause ends right after that, because its holder may have crashed.
func (g *Group) Delay(try int, f *Failure) time.Duration {
	left := f.Remaining
	if f.Kind == InQuarantine && left > longest {
		d := min(left, time.Second) // a quarantine ends earlier only if a node returns
		return d + g.Jitter(d/8)
	}
	limit := min(firstDelay<<min(try, 10), longest)
	d := limit/2 + g.Jitter(limit/2)
	if left > 0 && left < d {
		return g.afterExpiry(left)
	}
	return d
}

// firstDelay is the longest first Delay.
const firstDelay = 8 * time.Millisecond

// afterExpiry returns a wait until a key has expired. Redis expires keys to the millisecond.
func (g *Group) afterExpiry(left time.Duration) time.Duration {
	return left + time.Millisecond + g.Jitter(firstDelay/2)
}

// renewalStep is the longest rounding step for the times of renewals.
const renewalStep = 20 * time.Millisecond

// renewAfter returns the time of a renewal: between a quarter and a third of the TTL after start,
// at random, so that locks taken together are renewed apart. Rounded steps let renewals share a
// packet.
func (g *Group) renewAfter(start clock.Instant, ttl time.Duration) clock.Instant {
	latest := start.Add(ttl / 3)
	at := latest.Add(-g.Jitter(ttl/12 + 1))
	step := max(min(renewalStep, ttl/256), 1)
	if rest := time.Duration(at) % step; rest > 0 {
		at = at.Add(step - rest)
	}
	return min(at, latest)
}
