package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// tick is the longest time that a timer relies on Go's runtime alone. Runtime timers stand still
// while the machine sleeps, so a timer may be overdue after a resume. It notices at its next tick.
const tick = 250 * time.Millisecond

// System is the clock of this machine. It counts the time the machine was suspended if the platform
// can measure that (Linux, macOS, Windows). It is never behind Go's monotonic clock.
var System Clock = newSystem(sinceBoot)

type system struct {
	platform func() (time.Duration, bool)     // returns false if the platform has no such clock
	read     func() (now, wall time.Duration) // Go's clock since start, and the wall clock just before
	start    time.Time                        // origin
	boot     time.Duration                    // reading of the platform's clock at start
	ok       bool                             // the platform has a clock
	last     atomic.Pointer[reading]          // last reading of the platform's clock
}

// A reading records one reading of the platform's clock.
type reading struct {
	at     time.Duration // on Go's clock
	gap    time.Duration // wall clock minus Go's clock at that time
	asleep time.Duration // sleep of the machine since the origin; Now relies on it until the next reading
}

// The platform's clock costs a system call, ten times as much as Go's clock. The two differ by the
// time that the machine slept. The wall clock keeps running during sleep, so a reading remains
// valid as long as the wall clock and Go's clock have not moved against each other. Both are cheap
// to read. Setting the wall clock moves it, too, and costs one reading.
//
// No reading is valid for long. A wall clock that is set back by exactly the time that the machine
// slept, within a tenth of a millisecond and before any call of Now, therefore hides the sleep for
// at most readingLife.
const (
	readingLife = 10 * time.Millisecond
	gapNoise    = 100 * time.Microsecond // time between two readings
)

func newSystem(platform func() (time.Duration, bool)) *system {
	s := &system{platform: platform, start: time.Now()}
	s.read = func() (now, wall time.Duration) {
		t := time.Now()
		wall = time.Duration(t.UnixNano())
		if t.Unix()>>32 != 0 { // far beyond 2100, a Time contains only the wall clock
			return time.Since(s.start), wall
		}
		return t.Sub(s.start), wall
	}
	s.boot, s.ok = platform()
	// If a coarse clock has just stepped, one reading would be ahead of the next, and a lease
	// counted from it would end late. The clock is therefore held back by its resolution, so that
	// it overtakes Go's clock only after a real suspend.
	s.boot += resolution
	now, wall := s.read()
	s.last.Store(&reading{at: now, gap: wall - now})
	return s
}

// Now returns the later of the two clocks. The platform's clock counts suspends. Go's clock is
// ahead if the platform's clock is coarse (Windows), or if a sandbox provides it.
func (s *system) Now() Instant {
	now, wall := s.read()
	if !s.ok {
		return Instant(now)
	}
	last := s.last.Load()
	if moved := wall - now - last.gap; now-last.at > readingLife || moved > gapNoise || moved < -gapNoise {
		return s.ask(now, wall-now)
	}
	return Instant(now + last.asleep)
}

// ask implements Now with a reading of the platform's clock, taken after the reading now of Go's
// clock. The known sleep only grows, and only by sleep that is certain, so time never goes back.
// The goroutine may have lost its processor between the readings. That is not sleep, and must not
// hide sleep that happens later. If the reading took long, the next Now takes another one.
func (s *system) ask(now, gap time.Duration) Instant {
	boot, ok := s.platform()
	if !ok {
		return Instant(now + s.last.Load().asleep)
	}
	since := boot - s.boot
	after, _ := s.read()
	for {
		last := s.last.Load()
		next := &reading{at: now, gap: gap, asleep: max(last.asleep, since-after)}
		switch {
		case now < last.at: // another goroutine has stored a newer reading
			next.at, next.gap = last.at, last.gap
		case after-now > gapNoise:
			next.at = now - readingLife - 1
		}
		if s.last.CompareAndSwap(last, next) {
			return Instant(max(now+next.asleep, since))
		}
	}
}

func (s *system) AfterFunc(d time.Duration, f func()) Timer {
	t := &systemTimer{clock: s, f: f}
	// The lock is held because a timer that fires at once must find the field set.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(d)
	return t
}

// A systemTimer calls f at a time of the system clock. Stop, and a Reset to a later time, do not
// touch the runtime's timer: it fires without effect, and is set again if a call is still due. Most
// timers are timeouts of requests, set for each request and stopped before they fire. An idle
// firing once per timeout or tick, whichever is shorter, costs less than moving the runtime's timer
// each time.
type systemTimer struct {
	clock *system
	f     func()

	mu      sync.Mutex
	brief   bool    // at is a reading of Go's clock alone
	at      Instant // due time of the call
	armed   bool
	runtime *time.Timer
	fires   time.Duration // latest time at which runtime fires, on Go's clock; zero if it is not set
}

// set makes the call due in d. Go's clock is enough for at most a tick: after a resume the call is
// late by no more than a tick, and the platform's clock costs a system call. The caller must hold
// t.mu.
func (t *systemTimer) set(d time.Duration) {
	now := time.Since(t.clock.start)
	if t.armed, t.brief = true, d <= tick; t.brief {
		t.at = Instant(now).Add(d)
	} else {
		t.at = t.clock.Now().Add(d)
	}
	t.fireWithin(d, now)
}

// fireWithin makes the runtime's timer fire within d of now, and within a tick. The caller must
// hold t.mu.
func (t *systemTimer) fireWithin(d, now time.Duration) {
	d = max(0, min(d, tick))
	if t.fires > 0 && t.fires <= now+d {
		return
	}
	if t.runtime == nil {
		t.runtime = time.AfterFunc(d, t.fire)
	} else {
		t.runtime.Reset(d)
	}
	t.fires = time.Since(t.clock.start) + d // not now + d: now may be long ago, because the goroutine can have lost its processor
}

func (t *systemTimer) fire() {
	t.mu.Lock()
	t.fires = 0
	if !t.armed {
		t.mu.Unlock()
		return
	}
	now := time.Since(t.clock.start)
	left := t.at.Sub(Instant(now))
	if !t.brief {
		left = t.at.Sub(t.clock.Now())
	}
	if left > 0 {
		t.fireWithin(left, now)
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
	return was
}

func (t *systemTimer) Reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.armed
	t.set(d)
	return was
}
