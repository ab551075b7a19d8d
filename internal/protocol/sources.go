package protocol

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Sources are a Locker's sources of time and chance. Tests replace them: a zero field replaces
// nothing.
type Sources struct {
	Clock  clock.Clock                                    // counts leases
	Wall   func() time.Time                               // source of fencing tokens
	Jitter func(limit time.Duration) (draw time.Duration) // randomness of waits and renewals; draw is at least zero and below limit
}
