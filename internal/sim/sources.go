package sim

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// Clock sets the clock for the deadlines of leases, instead of clock.System.
func Clock(c clock.Clock) redlock.LockerOption { return option{set: protocol.Sources{Clock: c}} }

// Wall sets the wall clock for fencing tokens, instead of time.Now.
func Wall(now func() time.Time) redlock.LockerOption { return option{set: protocol.Sources{Wall: now}} }

// Jitter sets the source of randomness for waits and renewals, instead of math/rand/v2. draw
// returns a duration from zero up to, but not including, limit.
func Jitter(draw func(limit time.Duration) time.Duration) redlock.LockerOption {
	return option{set: protocol.Sources{Jitter: draw}}
}

// An option is a redlock.LockerOption that package redlock asks for its Sources.
type option struct {
	redlock.LockerOption // always nil; makes option a LockerOption
	set                  protocol.Sources
}

// Sources returns the replaced sources.
func (o option) Sources() protocol.Sources { return o.set }
