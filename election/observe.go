package election

import (
	"context"
	"iter"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Leader is who leads, as an observer sees it. The zero Leader is none.
type Leader struct {
	ID    string        // which the candidate gave to Run; empty for a lock that was not taken by one
	Since time.Time     // when it asked for the lock, by its own clock, to the second
	Left  time.Duration // until a quorum of servers does not hold its lock any more, unless it is renewed

	value string // of the lock: two terms of one candidate have different ones
}

// Exists reports whether there is a leader.
func (l Leader) Exists() bool { return l.value != "" }

// Leader returns who holds the lock on a quorum of servers. The answer may be out of date when the
// caller looks at it, so it is for people, routing and caches. For what must have one writer check
// Term.Token.
//
// The error is that of redlock.Locker.Inspect: it matches redlock.ErrNoQuorum if too few servers
// answered. Leader changes nothing, and returns within the node timeout.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	seen, err := e.locker.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	value, left, ok := seen.Holder()
	if !ok {
		return Leader{}, nil
	}
	holder := redlock.HolderOf(value)
	return Leader{ID: holder.Owner, Since: holder.Since, Left: left, value: value}, nil
}

// Leaders returns who leads now, and then each change, until ctx ends or the caller leaves the
// loop:
//
//	for leader, err := range office.Leaders(ctx, time.Second) { ... }
//
// It asks the servers every interval, at least 10 ms, so it may miss a shorter term. The zero
// Leader without an error means that nobody leads. An error means that it is not known who leads,
// and comes once until it is known again. Each loop over the result asks for itself.
func (e *Election) Leaders(ctx context.Context, every time.Duration) iter.Seq2[Leader, error] {
	const least = 10 * time.Millisecond
	return func(yield func(Leader, error) bool) {
		var last Leader
		var failed error
		for first := true; ctx.Err() == nil; first = false {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			news := leader.value != last.value || failed != nil
			if err != nil {
				news = failed == nil
			}
			if first || news {
				if !yield(leader, err) {
					return
				}
			}
			if failed = err; err == nil {
				last = leader
			}
			pause(ctx, max(every, least))
		}
	}
}
