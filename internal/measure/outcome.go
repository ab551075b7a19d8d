package measure

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/redlock"
)

// Acquired is the outcome of an acquisition that has the lock.
const Acquired = "acquired"

// Acquisitions has all values of Acquisition.
var Acquisitions = []string{Acquired, "held", "no_quorum", "canceled", "timeout", "closed", "other"}

// Acquisition is the outcome of an acquisition that ended with err. Of an error
// about a vote only its kind counts, and not what single nodes said.
func Acquisition(err error) string {
	switch kind := kindOf(err); {
	case kind == nil:
		return Acquired
	case errors.Is(kind, redlock.ErrHeld):
		return "held"
	case errors.Is(kind, redlock.ErrNoQuorum):
		return "no_quorum"
	case errors.Is(kind, context.Canceled):
		return "canceled"
	case errors.Is(kind, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(kind, redlock.ErrClosed):
		return "closed"
	}
	return "other"
}

// Lost is the outcome of a release that showed that the lock had been lost.
const Lost = "lost"

// Releases has all values of Release.
var Releases = []string{"confirmed", "unconfirmed", Lost, "closed"}

// Release is the outcome of a release that ended with err.
func Release(err error) string {
	switch kind := kindOf(err); {
	case kind == nil:
		return "confirmed"
	case errors.Is(kind, redlock.ErrLost):
		return Lost
	case errors.Is(kind, redlock.ErrClosed):
		return "closed"
	}
	return "unconfirmed"
}

func kindOf(err error) error {
	if q, ok := err.(*redlock.QuorumError); ok {
		return q.Err
	}
	return err
}
