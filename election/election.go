package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// An Election is an office that one candidate at a time holds. It is safe for concurrent use.
type Election struct {
	locker *redlock.Locker
	name   string
	opts   []redlock.Option
}

// New returns the election for the office name, which is the name of a lock of locker. The options
// are for that lock. The TTL bounds how long there is no leader after one vanished. Fenced, Owner
// and Exclusive are always set. Renew(false) makes each term end after the TTL.
func New(locker *redlock.Locker, name string, opts ...redlock.Option) *Election {
	return &Election{locker: locker, name: name, opts: slices.Clone(opts)}
}

// A Term is one time of leading.
type Term struct{ lock *redlock.Lock }

// Token returns the number of the term, a fencing token. A later term of the office has a greater
// one, whoever leads. Send it to the resource with every write (package fence).
func (t Term) Token() int64 { return t.lock.Fence() }

// Remaining returns how long the leader is certainly the only one without a renewal, and zero once
// the term is over.
func (t Term) Remaining() time.Duration { return t.lock.Remaining() }

// Run campaigns for the office until ctx ends, and calls lead each time that it wins. id tells
// observers and other candidates who leads, and decides nothing: at most 128 bytes of printable
// text, as for redlock.Owner. Each candidate is one Run.
//
// The context of lead ends with ctx, and when the lock is lost, with a cause that matches
// redlock.ErrLost. lead must then return: only then is the lock released, and does this candidate
// campaign again. If lead panics the lock is released, too.
//
// lead resigns by returning nil. Then the others have at least half a second to win. If it returns
// an error while it still leads, Run releases the lock and returns the error. After its context has
// ended its result is ignored.
//
// When Run returns, a quorum of servers has confirmed the release, or the node timeout is over.
// Close the Locker before the process exits, because requests to the other servers are lost with it.
//
// Run returns nil if ctx has ended, lead's error, or an error that waiting cannot help:
// redlock.ErrClosed, a wrong name, ID or option, or redlock.QuorumError.Permanent. It waits through
// outages, with pauses that grow to two seconds.
func (e *Election) Run(ctx context.Context, id string, lead func(ctx context.Context, term Term) error) error {
	switch {
	case e.locker == nil:
		return fmt.Errorf("election: %q: there is no Locker", e.name)
	case ctx == nil:
		return fmt.Errorf("election: %q: the context is nil; context.Background() is the one that never ends", e.name)
	case id == "":
		return fmt.Errorf("election: %q: the candidate has no ID; give what tells people who it is", e.name)
	case lead == nil:
		return fmt.Errorf("election: %q: the function is nil", e.name)
	}
	opts := append(slices.Clone(e.opts), redlock.Fenced(), redlock.Owner(id), redlock.Exclusive())
	campaign := context.WithValue(ctx, protocol.Campaign{}, true)
	for tries := 0; ctx.Err() == nil; {
		lock, err := e.locker.Acquire(campaign, e.name, opts...)
		var vote *redlock.QuorumError
		switch {
		case err == nil:
			tries = 0
			if err := term(ctx, lock, lead); err != nil {
				return err
			}
			pause(ctx, standBack+rand.N(standBack/2))
		case ctx.Err() != nil:
		case errors.As(err, &vote) && !vote.Permanent():
			pause(ctx, backoff(tries))
			tries++
		default:
			return err
		}
	}
	return nil
}

// term is one term of office. Its error ends the campaign.
func term(ctx context.Context, lock *redlock.Lock, lead func(context.Context, Term) error) error {
	// The next leader begins at once after the release, so it comes when lead has returned. ctx has
	// often ended by then, and the process exits after Run: so Release waits for confirmation, for
	// the node timeout at most.
	defer lock.Release(context.WithoutCancel(ctx))
	work, cancel := lock.Bind(ctx)
	defer cancel()
	err := lead(work, Term{lock})
	if work.Err() != nil || !lock.Valid() {
		return nil
	}
	return err
}

// standBack is how long a candidate leaves the field to the others after a term. Its own request
// would always be the first after its release, and waiters without hints look every 200 ms.
const standBack = 500 * time.Millisecond

// Pauses between tries during an outage double from firstPause to lastPause. A part is drawn by
// lot, so that candidates do not come all at once when it is over.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

func backoff(tries int) time.Duration {
	limit := min(firstPause<<min(tries, 10), lastPause)
	return limit/2 + rand.N(limit/2)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
