package job

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// A lease is the time for which a command may run. It ends KillAfter and Margin before the end of
// its lock's validity, which moves with each renewal. It is used by one goroutine.
type lease struct {
	lock    heldLock
	command Command
	allow   func(until clock.Instant) // sets the deadline of the command in the warden

	due   chan struct{} // a decision is due
	timer clock.Timer
	until clock.Instant // deadline of the command in the warden
	lost  error         // reason the command is being ended
}

// A heldLock has the methods of a lock that a lease uses.
type heldLock interface {
	Name() string
	Context() context.Context
	Remaining() time.Duration
}

func newLease(lock heldLock, c Command, allow func(clock.Instant)) *lease {
	l := &lease{lock: lock, command: c, allow: allow, due: make(chan struct{}, 1)}
	l.timer = clock.System.AfterFunc(time.Hour, func() {
		select {
		case l.due <- struct{}{}:
		default:
		}
	})
	l.timer.Stop()
	return l
}

func (l *lease) stop() { l.timer.Stop() }

// end returns the deadline of the command, from the remaining time of the lock at this moment: this
// process may have been late, and the lock may have been renewed in the meantime. The clock is read
// before the lock, so that a pause between the two makes the lease shorter, not longer.
func (l *lease) end() clock.Instant {
	if l.lost != nil {
		return l.until
	}
	now := clock.System.Now()
	return max(l.until, now.Add(l.lock.Remaining()-l.command.Margin))
}

// left returns the remaining life of the command without another renewal.
func (l *lease) left() time.Duration { return max(0, l.until.Sub(clock.System.Now())) }

// over reports whether the deadline has passed.
func (l *lease) over() bool { return clock.System.Now() >= l.end() }

// renewed reports whether the command may continue. If it may, the lease is due again when the
// command would have to be asked to end.
func (l *lease) renewed() bool {
	end := l.end()
	left := end.Sub(clock.System.Now()) - l.command.KillAfter
	if left <= 0 {
		return false
	}
	l.live(end)
	l.timer.Reset(left)
	return true
}

// live sets the deadline of the command.
func (l *lease) live(until clock.Instant) {
	l.until = until
	l.allow(until)
}

// asLost returns the error of a lock that must be treated as lost.
func (l *lease) asLost(why string) error {
	return fmt.Errorf("redlock: %q: %w: %s", l.lock.Name(), redlock.ErrLost, why)
}

// lose records the loss of the lock, or another reason to end the command.
func (l *lease) lose(instead error) {
	if l.lost = context.Cause(l.lock.Context()); l.lost == nil {
		l.lost = instead
	}
}

// late returns the reason to end a command whose lock is not renewed.
func (l *lease) late() error { return l.asLost("not renewed in time") }

// shorten records the loss of the lock, or another reason to end the command. It leaves the command
// KillAfter, but never more time than it had.
func (l *lease) shorten(instead error) {
	end := l.end()
	l.lose(instead)
	now := clock.System.Now()
	l.live(min(end, now.Add(l.command.KillAfter)))
	l.timer.Reset(max(0, l.until.Sub(now)))
}
