// Package sources has what a Locker takes time and chance from, for tests that replace it.
package sources

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Set replaces the sources that it has. The zero Set replaces none.
type Set struct {
	Clock  clock.Clock                                    // by which leases are counted
	Wall   func() time.Time                               // from which fencing tokens are taken
	Jitter func(limit time.Duration) (draw time.Duration) // of waits and renewals: from zero up to, not including, limit
}
