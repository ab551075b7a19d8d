package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// tick bounds how long a timer relies on Go's runtime alone. Runtime timers stand still while the
// machine sleeps, so after a resume a timer may be overdue; it notices at its next tick.
const tick = 250 * time.Millisecond

// System is this machine's clock. It counts the time that the machine was suspended where the
// platform can tell (Linux, macOS, Windows), and is never behind Go's monotonic clock.
var System Clock = newSystem(sinceBoot)

type system struct {
	platform func() (time.Duration, bool)     // false: there is none
	read     func() (now, wall time.Duration) // Go's clock since the origin, and the wall clock just before
	start    time.Time                        // the origin
	boot     time.Duration                    // the same moment on the platform's clock
	ok       bool                             // whether there is one
	last     atomic.Pointer[reading]          // of the platform's clock
}

// A reading is what the platform's clock has told.
type reading struct {
	at     time.Duration // on Go's clock
	gap    time.Duration // what the wall clock was ahead of Go's then
	asleep time.Duration // what the machine has slept since the origin, on which Now rests until the next reading
}

// The platform's clock costs a system call, ten times as much as Go's. It differs from Go's by
// the time that the machine slept. The wall clock goes on as well meanwhile, so a reading holds as
// long as wall clock and Go's have not moved against each other. These two are cheap to read. One
// who sets the wall clock moves it, too, which costs a reading.
//
// No reading holds for long. So even a wall clock that was set back by what the machine slept, to
// a tenth of a millisecond and before anyone could look, hides that for no longer than readingLife.
const (
	readingLife = 10 * time.Millisecond
	gapNoise    = 100 * time.Microsecond // between reading the one and the other
)

func newSystem(platform func() (time.Duration, bool)) *system {
	s := &system{platform: platform, start: time.Now()}
	s.read = func() (now, wall time.Duration) {
		t := time.Now()
		wall = time.Duration(t.UnixNano())
		if t.Unix()>>32 != 0 { // far beyond 2100 a Time goes by the wall clock alone
			return time.Since(s.start), wall
		}
		return t.Sub(s.start), wall
	}
	s.boot, s.ok = platform()
	// A coarse clock that happens to have just stepped would put one reading
	// ahead of the next, and a lease counted from it would end late. Held back
	// by its resolution it overtakes Go's clock only after a real suspend.
	s.boot += resolution
	now, wall := s.read()
	s.last.Store(&reading{at: now, gap: wall - now})
	return s
}

// Now takes the later of the two clocks: the platform's sees suspends, and
// Go's catches a platform clock that is coarse (Windows), or that a sandbox
// serves from elsewhere.
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

// ask is Now by a reading of the platform's clock, after Go's was read. The sleep that is known only
// grows, by what is certain: the goroutine may have lost its processor between the readings, which
// is no sleep, and must not stand for one that comes later. So time never goes back. A reading that
// took long is asked for again by the next Now.
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
		case now < last.at: // another goroutine's is newer
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
	// Under the lock: a timer that fires at once must find the field set.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(d)
	return t
}

// A systemTimer calls f by the system's clock. Stop, and a Reset to a later time, leave the runtime's
// timer as it is: it fires for nothing, and is set again if a call is still due. Most timers are
// limits that are set for each request and stopped before they are reached, and to move the runtime's
// timer each time costs more than to have it fire for nothing once a limit or tick, whichever is
// shorter.
type systemTimer struct {
	clock *system
	f     func()

	mu      sync.Mutex
	brief   bool    // at is a reading of Go's clock alone
	at      Instant // when the call is due
	armed   bool
	runtime *time.Timer
	fires   time.Duration // when runtime does at the latest, on Go's clock; zero: it is not set
}

// set makes the call due in d. Within a tick Go's clock will do: a call that is
// late by no more after a resume is on time, and the platform's clock costs a
// system call. The timer must be locked.
func (t *systemTimer) set(d time.Duration) {
	now := time.Since(t.clock.start)
	if t.armed, t.brief = true, d <= tick; t.brief {
		t.at = Instant(now).Add(d)
	} else {
		t.at = t.clock.Now().Add(d)
	}
	t.fireWithin(d, now)
}

// fireWithin has the runtime's timer fire within d of now, and within a tick. The timer must be
// locked.
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
	t.fires = time.Since(t.clock.start) + d // now may be long ago: the goroutine can have lost its processor
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
