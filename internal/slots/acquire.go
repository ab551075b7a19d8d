package slots

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// Acquire acquires the lock of a tick with ask, a function that does not wait for a holder, and
// returns the last result of ask. The caller must call once.Job.Claim with the lock, because another
// machine may have held it in the meantime.
//
// Machines that call ask at the same moment can split the votes. Each of them is then refused
// (redlock.ErrHeld) although no machine holds the lock, and the tick would run nowhere. After a
// refusal Acquire therefore looks for a holder of the names. It calls ask again until it finds one.
// After three seconds it returns redlock.ErrNoQuorum, because the tick may not have run on any
// machine.
func Acquire(ctx context.Context, locker *redlock.Locker, names []string, ask func() (*redlock.Lock, error)) (*redlock.Lock, error) {
	const (
		patience   = 3 * time.Second
		firstPause = 20 * time.Millisecond
	)
	began := time.Now()
	for {
		asked := time.Now()
		lock, err := ask()
		if !errors.Is(err, redlock.ErrHeld) || anyHeld(ctx, locker, names) {
			return lock, err
		}
		if time.Since(began) > patience {
			return nil, split(err)
		}
		// The pause is random, from a range in which several machines can ask in turn.
		timer := time.NewTimer(rand.N(max(firstPause, 2*time.Since(asked))))
		select {
		case <-timer.C:
		case <-ctx.Done(): // the next ask returns its error
			timer.Stop()
		}
	}
}

// split returns the error of a refusal without a holder.
func split(refused error) error {
	var vote *redlock.QuorumError
	if !errors.As(refused, &vote) {
		return refused
	}
	of := *vote
	of.Err = redlock.ErrNoQuorum
	return &of
}

// anyHeld reports whether a quorum of servers agrees on one holder for any of the names.
func anyHeld(ctx context.Context, locker *redlock.Locker, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		found, err := locker.Inspect(ctx, name)
		if err != nil {
			return false // the holder is unknown; the next ask reports an outage
		}
		_, _, held := found.Holder()
		return held
	})
}
