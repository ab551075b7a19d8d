package redlock

import (
	"errors"
	"fmt"
	"time"
)

// A warning is what WarnBefore was given.
type warning struct {
	before time.Duration
	tell   func(*Lock)
}

// WarnBefore calls warn when the lock has only d left, because renewals fail or there are none
// (Renew, MaxHold). So work can be saved before the lock's context ends. It is called once, and
// again if the lock was extended and then comes to its end a second time. Default: none, as with
// zero.
//
// A lock that is well is never warned of. It is renewed at a third of its TTL, so d is at most two
// thirds of the TTL, less Drift(TTL) and the node timeout that a renewal may take: 6.06 s with the
// defaults. More is an error, and Locker.MostWarning tells it.
//
// warn has a goroutine of its own, and can still run when the lock is released. A lock that is gone
// from a majority of nodes ends without a warning.
func WarnBefore(d time.Duration, warn func(*Lock)) Option {
	return Option{apply: func(s *settings) error {
		switch {
		case d < 0:
			return fmt.Errorf("WarnBefore(%v): must not be negative", d)
		case d > 0 && warn == nil:
			return errors.New("WarnBefore: the function is nil; give zero for no warning")
		}
		if s.warning = nil; d > 0 {
			s.warning = &warning{before: d, tell: warn}
		}
		return nil
	}}
}

// MostWarning returns the most that WarnBefore takes for a lock with these options. It is zero if such
// a lock cannot be warned of, because its TTL is too short, or if the options are refused.
func (l *Locker) MostWarning(opts ...Option) time.Duration {
	c, err := l.settings.with(opts)
	if err != nil {
		return 0
	}
	return c.mostWarning()
}

// mostWarning is what a lock with these settings can have left, before it is renewed, although it is well.
func (s *settings) mostWarning() time.Duration {
	return max(0, s.TTL*2/3-Drift(s.TTL)-s.Timeout)
}

// checkWarning refuses a warning that a lock with these settings would get although it is well.
func (s *settings) checkWarning(w *warning) error {
	if w != nil && w.before > s.mostWarning() {
		return fmt.Errorf("redlock: option WarnBefore(%v): must be at most %v with a TTL of %v and a node timeout of %v: "+
			"a lock that is well can have so little left before it is renewed", w.before, s.mostWarning(), s.TTL, s.Timeout)
	}
	return nil
}

// watch has the Lock look, after some time, whether its caller is to be warned. isTold says that this was done, and
// that the Lock has not been extended since.
func (k *Lock) watch(after time.Duration, isTold bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cause == nil {
		k.alarm = k.locker.settings.clock.AfterFunc(after, func() { k.look(isTold) })
	}
}

// look warns the caller if the end of the Lock is near. If it is not, the Lock looks again when it will be, unless
// it is extended until then. So a renewal costs nothing.
//
// After a warning it looks several times, because it must see an extension before the end is near again. That takes
// half of d at least, since d is at most two thirds of what a renewal gives.
func (k *Lock) look(isTold bool) {
	w, left := k.settings.warning, k.Remaining()
	switch {
	case left == 0: // the end of the context tells
	case left > w.before:
		k.watch(left-w.before, false)
	default:
		k.watch(max(w.before/4, time.Millisecond), true)
		if !isTold {
			w.tell(k)
		}
	}
}
