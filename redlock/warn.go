package redlock

import "time"

// A warning has the arguments of WarnBefore.
type warning struct {
	before time.Duration
	tell   func(*Lock)
}

// WarnBefore calls warn when the lock has only d left, because renewals fail or are off (Renew,
// MaxHold), so that work can be saved before the lock's context ends. warn is called once, and
// again if the lock was extended and then approaches its end a second time. Default: no warning, as
// with zero.
//
// A healthy lock never causes a warning. It is renewed at a third of its TTL, so d is at most two
// thirds of the TTL, less Drift(TTL) and the node timeout that a renewal may take: 6.06 s with the
// defaults. A greater d is an error; Locker.MostWarning returns the limit.
//
// warn has its own goroutine, and can still run when the lock is released. A lock that is gone from
// a majority of nodes ends without a warning.
func WarnBefore(d time.Duration, warn func(*Lock)) Option {
	return Option{apply: func(s *settings) error {
		switch {
		case d < 0:
			return refuse("WarnBefore", d, "must not be negative")
		case d > 0 && warn == nil:
			return refuse("WarnBefore", nil, "the function is nil: pass zero for no warning")
		}
		if s.warning = nil; d > 0 {
			s.warning = &warning{before: d, tell: warn}
		}
		return nil
	}}
}

// MostWarning returns the greatest value of WarnBefore for a lock with these options. It is zero if
// such a lock cannot have a warning, because its TTL is too short, or if the options are refused.
func (l *Locker) MostWarning(opts ...Option) time.Duration {
	c, err := l.settings.with(opts)
	if err != nil {
		return 0
	}
	return c.mostWarning()
}

// mostWarning returns the least time that a healthy lock with these settings can have left before
// it is renewed.
func (s *settings) mostWarning() time.Duration {
	return max(0, s.TTL*2/3-Drift(s.TTL)-s.Timeout)
}

// checkWarning returns an error for a warning that a healthy lock with these settings would get.
func (s *settings) checkWarning(w *warning) error {
	if w != nil && w.before > s.mostWarning() {
		return refuse("WarnBefore", w.before, "must be at most %v with a TTL of %v and a node timeout of %v: "+
			"a healthy lock can have that little left before it is renewed", s.mostWarning(), s.TTL, s.Timeout)
	}
	return nil
}

// watch makes the Lock check, after some time, whether to warn its caller. isTold means that the
// caller was warned, and that the Lock has not been extended since.
func (k *Lock) watch(after time.Duration, isTold bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cause == nil {
		k.alarm = k.locker.settings.clock.AfterFunc(after, func() { k.look(isTold) })
	}
}

// look warns the caller if the end of the Lock is near. Otherwise it checks again when the end
// would be near without an extension, so a renewal costs nothing.
//
// After a warning it checks several times, because it must see an extension before the end is near
// again. After an extension, the end is near again after at least half of d, because d is at most
// two thirds of the time that a renewal gains.
func (k *Lock) look(isTold bool) {
	w, left := k.settings.warning, k.Remaining()
	switch {
	case left == 0: // the caller sees the end of the context
	case left > w.before:
		k.watch(left-w.before, false)
	default:
		k.watch(max(w.before/4, time.Millisecond), true)
		if !isTold {
			w.tell(k)
		}
	}
}
