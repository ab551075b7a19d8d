package fence

import (
	"errors"
	"fmt"
)

// MaxToken is the highest token, 2^53 - 1. Beyond it floating point numbers, which are all that Lua
// in Redis and JavaScript have, would take different tokens for equal.
const MaxToken = 1<<53 - 1

var (
	// ErrStale is matched by the error of a write that came too late: a holder with a higher token
	// has been there. The lock was lost, and what was read under it may have changed. Do not try
	// again with the same token.
	ErrStale = errors.New("fence: stale token")

	// ErrToken is matched by the error for a number that is no token.
	ErrToken = errors.New("fence: not a token")
)

// A StaleError names both tokens. It matches ErrStale.
type StaleError struct {
	Key     string // what was to be written
	Token   int64  // the writer's
	Highest int64  // seen before
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: token %d is stale: %q has seen %d", e.Token, e.Key, e.Highest)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Check returns nil if token is from 1 to MaxToken, else an error that matches ErrToken. Use it in
// resources of your own.
func Check(token int64) error {
	if token < 1 || token > MaxToken {
		return fmt.Errorf("%w: %d is not from 1 to %d (a lock without fencing has 0)", ErrToken, token, int64(MaxToken))
	}
	return nil
}
