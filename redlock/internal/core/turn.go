package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Turn is a time in which one process has the key again and again, with no other in between. If the process knows of
// no others that wait, it asks at the end, together with the release, and goes on until the answer is there. If others
// wait, it lines up before it takes the key again.
type Turn struct {
	until  clock.Instant // when it is over; zero: another begins with the next claim
	got    clock.Instant // when the process got the key last
	ended  clock.Instant // when it gave the key back last
	cost   time.Duration // how long an acquisition takes; it grows by steps
	others int           // processes that wait, as far as is known
	asked  bool          // the question was asked, or others have been met
}

// The shortest and the longest turn.
const (
	minTurn = 5 * time.Millisecond
	maxTurn = 250 * time.Millisecond
)

// length is longer where acquisitions are slow, so lining up takes at most a tenth of it, up to maxTurn.
func (t *Turn) length() time.Duration { return min(max(minTurn, 10*t.cost), maxTurn) }

// isOver reports whether the process has come back at once, and others go first.
func (t *Turn) isOver(now clock.Instant) bool {
	return t.until > 0 && now.Sub(t.ended) < t.length() && (t.others > 0 || now >= t.until)
}

// begins notes that the process has got the key, for which it has asked the nodes at start, and how many others it met.
func (t *Turn) begins(start, now clock.Instant, others int) {
	t.cost = min(now.Sub(start), max(2*minTurn, 2*t.cost)) // one slow vote makes no long turn
	if t.got = now; t.until == 0 || now.Sub(t.ended) >= t.length() {
		t.until, t.asked = now.Add(t.length()), others > 0
	}
	if others > 0 {
		t.others = others
	}
}

// asks reports whether to ask who waits, as the process gives the key back. The turn goes on while the answer is under
// way, for two acquisitions at most. A process that has held the key for a whole turn lines up without a question.
func (t *Turn) asks(now clock.Instant) bool {
	if t.asked || t.others == 0 && now.Add(t.cost) < t.until || now.Sub(t.got) >= t.length() {
		return false
	}
	t.asked, t.until = true, now.Add(2*t.cost)
	return true
}

// told takes the answer. If nobody waits, another turn begins.
func (t *Turn) told(others int, now clock.Instant) {
	if t.others, t.asked = others, others > 0; others == 0 {
		t.until = now.Add(t.length())
	}
}
