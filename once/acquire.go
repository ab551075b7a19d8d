package once

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// Acquire takes the lock of a tick by ask, which waits for no holder, and returns what ask returned
// last. It is for programs that hold the lock in their own way, as Claim is. The caller must call
// Claim with the lock, because another machine may have held it meanwhile.
//
// Machines that ask at the same moment can split the votes, so each is refused (redlock.ErrHeld)
// though none holds the lock, and the tick would run nowhere. So after a refusal Acquire looks who
// holds the names, and asks again while nobody does. After three seconds its error is
// redlock.ErrNoQuorum, because no machine may have run the tick.
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
		// Drawn from a time in which several machines can ask one after the other.
		timer := time.NewTimer(rand.N(max(firstPause, 2*time.Since(asked))))
		select {
		case <-timer.C:
		case <-ctx.Done(): // which ask tells
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

// anyHeld reports whether a quorum of servers shows one holder for one of the names.
func anyHeld(ctx context.Context, locker *redlock.Locker, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		found, err := locker.Inspect(ctx, name)
		if err != nil {
			return false // it is not known, and the next request tells an outage
		}
		_, _, held := found.Holder()
		return held
	})
}
