package clock

import (
	"sync"
	"time"
)

// tick bounds how long a timer relies on Go's runtime alone. Runtime timers
// stand still while the machine sleeps, so a timer that is due in an hour may
// be overdue right after a resume; it finds out at its next tick.
const tick = 250 * time.Millisecond

// System is this machine's clock. It counts time that the machine spent
// suspended where the platform can tell (Linux, macOS, Windows), and never
// runs behind Go's monotonic clock anywhere.
var System Clock = newSystem(sinceBoot)

type system struct {
	platform func() (time.Duration, bool) // false: there is none

	start time.Time     // origin on Go's monotonic clock
	boot  time.Duration // the same moment on the platform's clock
	ok    bool          // whether there is one
}

func newSystem(platform func() (time.Duration, bool)) *system {
	s := &system{platform: platform, start: time.Now()}
	s.boot, s.ok = platform()
	// A coarse clock that happens to have just stepped would put one reading
	// ahead of the next, and a lease counted from it would end late. Held back
	// by its resolution it overtakes Go's clock only after a real suspend.
	s.boot += resolution
	return s
}

// Now takes the later of the two clocks: the platform's sees suspends, and
// Go's catches a platform clock that is coarse (Windows), or that a sandbox
// serves from elsewhere.
func (s *system) Now() Instant {
	now := time.Since(s.start)
	if s.ok {
		if boot, ok := s.platform(); ok {
			now = max(now, boot-s.boot)
		}
	}
	return Instant(now)
}

func (s *system) AfterFunc(d time.Duration, f func()) Timer {
	t := &systemTimer{clock: s, f: f}
	// Under the lock: a timer that fires at once must find the field set.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(d)
	t.runtime = time.AfterFunc(min(d, tick), t.fire)
	return t
}

type systemTimer struct {
	clock *system
	f     func()

	mu      sync.Mutex
	brief   bool    // at is a reading of Go's clock alone
	at      Instant // when the call is due
	armed   bool
	runtime *time.Timer
}

// set makes the call due in d. Within a tick Go's clock will do: a call that is
// late by no more after a resume is on time, and the platform's clock costs a
// system call. The timer must be locked.
func (t *systemTimer) set(d time.Duration) {
	t.armed, t.brief = true, d <= tick
	t.at = t.now().Add(d)
}

func (t *systemTimer) now() Instant {
	if t.brief {
		return Instant(time.Since(t.clock.start))
	}
	return t.clock.Now()
}

func (t *systemTimer) fire() {
	t.mu.Lock()
	if !t.armed {
		t.mu.Unlock()
		return
	}
	if left := t.at.Sub(t.now()); left > 0 {
		t.runtime.Reset(min(left, tick))
		t.mu.Unlock()
		return
	}
	t.armed = false
	t.mu.Unlock()
	t.f()
}

func (t *systemTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.armed
	t.armed = false
	t.runtime.Stop()
	return was
}

func (t *systemTimer) Reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.armed
	t.set(d)
	t.runtime.Reset(min(d, tick))
	return was
}
