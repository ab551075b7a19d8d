package fence

import (
	"errors"
	"fmt"
)

// MaxToken is the highest token, 2^53 - 1. Lua in Redis and JavaScript have only floating point
// numbers, which cannot tell apart different tokens beyond it.
const MaxToken = 1<<53 - 1

var (
	// ErrStale matches the error of a late write: a holder with a higher token has written or
	// announced its token. The lock was lost, and data read under it may have changed. Do not retry
	// with the same token.
	ErrStale = errors.New("fence: stale token")

	// ErrToken matches the error for a number that is not a token.
	ErrToken = errors.New("fence: not a token")
)

// A StaleError holds both tokens. It matches ErrStale.
type StaleError struct {
	Key     string // resource of the write
	Token   int64  // token of the write
	Highest int64  // highest token seen before
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: token %d is stale: %q has seen %d", e.Token, e.Key, e.Highest)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Check returns nil if token is between 1 and MaxToken, and otherwise an error that matches
// ErrToken. Use it in your own resources.
func Check(token int64) error {
	if token < 1 || token > MaxToken {
		return fmt.Errorf("%w: %d is not from 1 to %d (a lock without fencing has 0)", ErrToken, token, int64(MaxToken))
	}
	return nil
}
