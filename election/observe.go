package election

import (
	"context"
	"iter"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A Leader is the leader of an election, as an observer sees it. The zero Leader means no leader.
type Leader struct {
	ID    string        // passed to Run; empty if the lock was not acquired by Run
	Since time.Time     // time of its attempt by its own clock, to the second
	Left  time.Duration // time until no quorum of servers holds its lock any longer, unless it is renewed

	value string // value of the lock; two terms of one candidate have different values
}

// Exists reports whether there is a leader.
func (l Leader) Exists() bool { return l.value != "" }

// Leader returns the holder of the lock on a quorum of servers. The answer may be out of date when
// the caller reads it, so it is for people, routing and caches. To ensure a single writer, check
// Term.Token.
//
// The error is the error of redlock.Locker.Inspect: it matches redlock.ErrNoQuorum if too few
// servers answered. Leader changes nothing, and returns within the node timeout.
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

// Leaders yields the current leader and then each change, until ctx ends or the caller leaves the
// loop:
//
//	for leader, err := range billing.Leaders(ctx, time.Second) { ... }
//
// Leaders asks the servers once per interval, which is at least 10 ms, and can miss shorter terms.
// The zero Leader without an error means that there is no leader. An error means that the leader is
// unknown; it is yielded once per outage. Each loop over the result sends its own requests.
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
