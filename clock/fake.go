package clock

import (
	"math"
	"sync"
	"time"
)

// Fake is a clock for tests that runs fast or slow and jumps. It is based on package time, so in a
// testing/synctest bubble it is virtual and exact. Several Fakes drift against each other as
// machines do. A Fake is safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	since  time.Time // start of the current rate
	at     Instant   // reading of this clock at since
	rate   float64
	timers map[*fakeTimer]struct{} // armed timers
}

// NewFake returns a clock that reads zero and advances by rate seconds per second: 1 is exact, and
// 1.01 gains one per cent. NewFake panics unless rate is positive and finite.
func NewFake(rate float64) *Fake {
	checkRate(rate)
	return &Fake{since: time.Now(), rate: rate, timers: map[*fakeTimer]struct{}{}}
}

func checkRate(rate float64) {
	if !(rate > 0) || math.IsInf(rate, 1) {
		panic("clock: the rate of a Fake must be above zero and finite")
	}
}

// Now implements Clock.
func (c *Fake) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Fake) now() Instant {
	return c.at.Add(min(duration(float64(time.Since(c.since))*c.rate), math.MaxInt64-time.Duration(c.at)))
}

// SetRate makes the clock advance by rate seconds per second from now on.
func (c *Fake) SetRate(rate float64) {
	checkRate(rate)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rebase(c.now())
	c.rate = rate
	c.rearm()
}

// Step jumps d ahead, like the clock of a resumed machine. Timers that become due fire at once.
// Step panics if d is negative, because a Clock never goes back.
func (c *Fake) Step(d time.Duration) {
	if d < 0 {
		panic("clock: a Fake cannot step back, a Clock never decreases")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rebase(c.now().Add(d))
	c.rearm()
}

func (c *Fake) rebase(now Instant) { c.at, c.since = now, time.Now() }

func (c *Fake) rearm() {
	for t := range c.timers {
		t.runtime.Reset(c.runtimeUntil(t.at))
	}
}

// runtimeUntil converts the time until at into the seconds of package time. It rounds up, so that
// no timer fires early.
func (c *Fake) runtimeUntil(at Instant) time.Duration {
	return duration(math.Ceil(float64(max(0, at.Sub(c.now()))) / c.rate))
}

// duration returns ns nanoseconds, or the longest Duration if ns exceeds it.
func duration(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// AfterFunc implements Clock.
func (c *Fake) AfterFunc(d time.Duration, f func()) Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{clock: c, f: f, at: c.now().Add(d)}
	c.timers[t] = struct{}{}
	t.runtime = time.AfterFunc(c.runtimeUntil(t.at), t.fire)
	return t
}

type fakeTimer struct {
	clock   *Fake
	f       func()
	at      Instant // guarded by clock.mu
	runtime *time.Timer
}

func (t *fakeTimer) fire() {
	c := t.clock
	c.mu.Lock()
	if _, armed := c.timers[t]; !armed {
		c.mu.Unlock()
		return
	}
	if c.now() < t.at { // because of the rounding of the rate, or a Reset just now
		t.runtime.Reset(max(1, c.runtimeUntil(t.at)))
		c.mu.Unlock()
		return
	}
	delete(c.timers, t)
	c.mu.Unlock()
	t.f()
}

func (t *fakeTimer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.timers[t]
	delete(c.timers, t)
	t.runtime.Stop()
	return was
}

func (t *fakeTimer) Reset(d time.Duration) bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.timers[t]
	c.timers[t] = struct{}{}
	t.at = c.now().Add(d)
	t.runtime.Reset(c.runtimeUntil(t.at))
	return was
}
