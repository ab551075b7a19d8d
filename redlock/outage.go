package redlock

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Patience sets for how long Acquire waits through an outage. While too many nodes fail or do not
// answer it asks again, after waits that grow to 200 ms, and returns ErrNoQuorum when no quorum has
// answered for d. The end of its context ends that sooner. Default 3 s, because a hiccup of servers
// or of the network is no outage. Zero reports each at once. It has no effect with Retries, which
// counts tries, and on TryAcquire, which waits for the node timeout.
func Patience(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("Patience(%v): must not be negative; zero reports an outage at once", d)
		}
		s.patience = d
		return nil
	}}
}

// An outage is what the tries for one key know of one.
type outage struct {
	since    clock.Instant // no quorum has answered
	until    clock.Instant // the last try has failed
	settings *settings     // of that try
	failure  *QuorumError  // its error
}

// lasts returns for how long a caller that arrived then has waited through the outage.
func (o *outage) lasts(arrived clock.Instant) time.Duration {
	return o.until.Sub(max(o.since, arrived))
}

// hasPatience reports whether the caller waits through the outage that its last try has found.
func (a *acquisition) hasPatience() bool {
	return a.outage != nil && !a.outage.failure.Permanent() && a.settings.retries == Forever && a.outage.lasts(a.arrived) < a.settings.patience
}

// noteOutage returns failed with how long the outage has lasted.
func (a *acquisition) noteOutage(failed *QuorumError) *QuorumError {
	now := a.settings.clock.Now()
	since := a.askedAt
	if failed.Outage > 0 { // of a set's name, which was waited for
		since = now.Add(-failed.Outage)
	}
	before := a.outage
	if before == nil && a.line != nil {
		before = a.group.queue.outageOf(a.line)
	}
	if before != nil {
		since = min(since, before.since)
	}
	told := *failed // which has been shown to the observers
	told.Outage = now.Sub(since)
	a.outage = &outage{since: since, until: now, settings: a.settings, failure: &told}
	return &told
}

// inheritOutage returns the error of the caller before in the line, if that has found an outage while
// a waited behind it, for as long as a would wait through one, and asked for the same. Many callers
// would otherwise be told one after the other, each after a try of its own.
func (a *acquisition) inheritOutage() error {
	o := a.group.queue.outageOf(a.line)
	if o == nil || o.settings != a.settings || a.arrived == 0 || o.until < a.arrived || o.lasts(a.arrived) < a.settings.patience {
		return nil
	}
	return o.failure
}
