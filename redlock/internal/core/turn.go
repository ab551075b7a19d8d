package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Turn is a period in which one process takes the key repeatedly, without other processes in
// between. If the process is not aware of other waiting processes, it asks at the end, together
// with the release, and continues until the answer. If others wait, it joins the queue.
type Turn struct {
	until  clock.Instant // end of the turn; zero if another turn begins with the next claim
	got    clock.Instant // when the process last got the key
	ended  clock.Instant // when the process last released the key
	cost   time.Duration // duration of an acquisition; grows in steps
	others int           // waiting processes, by the last answer
	asked  bool          // the process has asked, or has met other processes
}

// The shortest and the longest turn.
const (
	minTurn = 5 * time.Millisecond
	maxTurn = 250 * time.Millisecond
)

// length returns the length of a turn. Queueing takes at most a tenth of it, up to maxTurn.
func (t *Turn) length() time.Duration { return min(max(minTurn, 10*t.cost), maxTurn) }

// isOver reports whether the process has returned at once, and other processes go first.
func (t *Turn) isOver(now clock.Instant) bool {
	return t.until > 0 && now.Sub(t.ended) < t.length() && (t.others > 0 || now >= t.until)
}

// begins records that the process got the key by an attempt from start, and met other processes.
func (t *Turn) begins(start, now clock.Instant, others int) {
	t.cost = min(now.Sub(start), max(2*minTurn, 2*t.cost)) // one slow attempt must not cause a long turn
	if t.got = now; t.until == 0 || now.Sub(t.ended) >= t.length() {
		t.until, t.asked = now.Add(t.length()), others > 0
	}
	if others > 0 {
		t.others = others
	}
}

// asks reports whether to ask for waiting processes with a release. The turn continues until the
// answer arrives, but only for the time of two acquisitions. After a hold that is as long as a
// turn, no question is needed, because the turn has ended.
func (t *Turn) asks(now clock.Instant) bool {
	if t.asked || t.others == 0 && now.Add(t.cost) < t.until || now.Sub(t.got) >= t.length() {
		return false
	}
	t.asked, t.until = true, now.Add(2*t.cost)
	return true
}

// answered applies the answer. If no process waits, another turn begins.
func (t *Turn) answered(others int, now clock.Instant) {
	if t.others, t.asked = others, others > 0; others == 0 {
		t.until = now.Add(t.length())
	}
}
