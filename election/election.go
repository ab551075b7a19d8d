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

// An Election chooses one leader at a time among its candidates. It is safe for concurrent use.
type Election struct {
	locker *redlock.Locker
	name   string
	opts   []redlock.Option
}

// New returns the election with the given name, which is also the name of its lock. The options
// apply to that lock. The TTL limits the time without a leader after a leader has vanished. Fenced,
// Owner and Exclusive are always set. Renew(false) makes each term end after the TTL.
func New(locker *redlock.Locker, name string, opts ...redlock.Option) *Election {
	return &Election{locker: locker, name: name, opts: slices.Clone(opts)}
}

// A Term is one candidate's time as leader.
type Term struct{ lock *redlock.Lock }

// Token returns the number of the term, a fencing token. A later term of the election has a greater
// number, whichever candidate leads. Send it to the resource with every write (package fence).
func (t Term) Token() int64 { return t.lock.Fence() }

// Remaining returns the time for which the leader is certainly the only one, even without a
// renewal. It returns zero after the term has ended.
func (t Term) Remaining() time.Duration { return t.lock.Remaining() }

// Run campaigns until ctx ends, and calls lead each time it wins. id names the candidate for
// observers and other candidates, and has no other effect. It is at most 128 bytes of printable
// text, as for redlock.Owner. Each candidate calls Run once.
//
// The context of lead ends with ctx. It also ends when the lock is lost, with a cause that matches
// redlock.ErrLost. lead must then return, because Run releases the lock and campaigns again only
// after that. The lock is also released if lead panics.
//
// lead resigns by returning nil. The other candidates then have at least half a second to win. If
// lead returns an error while it still leads, Run releases the lock and returns the error. If its
// context has ended, the result of lead is ignored.
//
// When Run returns, a quorum of servers has confirmed the release, or the node timeout has expired.
// Close the Locker before the process exits, because the exit discards the requests to the other
// servers.
//
// Run returns nil if ctx has ended. Otherwise it returns the error of lead, or an error that
// waiting cannot fix: redlock.ErrClosed, an invalid name, ID or option, or
// redlock.QuorumError.Permanent. Run waits through outages, with pauses of up to two seconds.
func (e *Election) Run(ctx context.Context, id string, lead func(ctx context.Context, term Term) error) error {
	switch {
	case e.locker == nil:
		return fmt.Errorf("election: %q: the Locker is nil", e.name)
	case ctx == nil:
		return fmt.Errorf("election: %q: the context is nil: pass context.Background() if it never ends", e.name)
	case id == "":
		return fmt.Errorf("election: %q: the candidate has no ID: pass a label that identifies it to people", e.name)
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

// term runs one term. An error ends the campaign.
func term(ctx context.Context, lock *redlock.Lock, lead func(context.Context, Term) error) error {
	// The next leader begins as soon as the lock is released, so the release follows the return of
	// lead. At that point ctx has often ended, and the process exits after Run. Release therefore
	// waits for confirmation, for at most the node timeout.
	defer lock.Release(context.WithoutCancel(ctx))
	work, cancel := lock.Bind(ctx)
	defer cancel()
	err := lead(work, Term{lock})
	if work.Err() != nil || !lock.Valid() {
		return nil
	}
	return err
}

// standBack is the minimum time for which a candidate leaves the election to the others after a
// term. Otherwise its own attempt would always be the first after its release, because waiters
// without hints look every 200 ms.
const standBack = 500 * time.Millisecond

// Pauses between tries during an outage double from firstPause to lastPause. A part is random, so
// that the candidates do not all return at once after the outage.
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
