package redlock

// Leftovers returns how many locks and names the Locker still knows of, and
// how many replies Close would wait for.
func (l *Locker) Leftovers() (scheduled, queued, inflight int) {
	l.agenda.mu.Lock()
	defer l.agenda.mu.Unlock()
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	l.inflight.mu.Lock()
	defer l.inflight.mu.Unlock()
	return len(l.agenda.locks), len(l.queue.lines), l.inflight.n
}

// HoldsLate does what an acquisition does last, as if the lock had ended before.
func (l *Locker) HoldsLate(k *Lock) { l.queue.hold(k) }

// ObserverOf returns the observer that the option makes.
func ObserverOf(o Option) Observer {
	var s settings
	if err := o.apply(&s); err != nil {
		panic(err)
	}
	return s.observers[0]
}
