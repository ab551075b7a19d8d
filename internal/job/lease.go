package job

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock"
)

// A lease is the time for which a command may run: until KillAfter and Margin before the end of
// its lock's validity, which moves with each renewal. It is used by one goroutine.
type lease struct {
	lock    *redlock.Lock
	command Command
	allow   func(time.Duration) // sets how long the warden lets the command live

	due   chan struct{} // something is to be decided
	timer clock.Timer
	until clock.Instant // when the command must be dead
	lost  error         // why it is being ended
}

func newLease(lock *redlock.Lock, c Command, allow func(time.Duration)) *lease {
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

// renewed reports whether the command may go on. If so, the lease is next due when the command
// would have to be asked to end. A lease that is over stays so, though its lock may have been
// renewed: the warden has ended the command.
func (l *lease) renewed() bool {
	if l.until > 0 && l.over() {
		return false
	}
	left := l.lock.Remaining() - l.command.Margin
	if left <= l.command.KillAfter {
		return false
	}
	l.live(left)
	l.timer.Reset(left - l.command.KillAfter)
	return true
}

// live sets when the command must be dead.
func (l *lease) live(d time.Duration) {
	l.until = clock.System.Now().Add(d)
	l.allow(d)
}

// shorten notes that the lock is lost, and leaves the command KillAfter, but never more than it
// had.
func (l *lease) shorten() {
	l.lost = context.Cause(l.lock.Context())
	if l.lost == nil {
		l.lost = fmt.Errorf("redlock: %q: %w: it could not be renewed in time", l.lock.Name(), redlock.ErrLost)
	}
	left := max(0, min(l.command.KillAfter, l.until.Sub(clock.System.Now())))
	l.live(left)
	l.timer.Reset(left)
}

// over reports whether the command must be dead by now.
func (l *lease) over() bool { return clock.System.Now() >= l.until }

// ended is called when the command has ended. If its time was over, that was why, even if it was
// the warden that killed it.
func (l *lease) ended() {
	if l.lost == nil && l.over() {
		l.shorten()
	}
}
