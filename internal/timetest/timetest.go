// Package timetest has options of redlock.New that are for tests: they replace what a
// Locker takes time and chance from.
package timetest

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/sources"
	"github.com/redquorum/redquorum/redlock"
)

// Clock sets the clock that leases are counted on, instead of clock.System.
func Clock(c clock.Clock) redlock.LockerOption { return option{set: sources.Set{Clock: c}} }

// Wall sets the wall clock that fencing tokens are taken from, instead of time.Now.
func Wall(now func() time.Time) redlock.LockerOption { return option{set: sources.Set{Wall: now}} }

// Jitter sets the source of randomness for waits and renewals, instead of math/rand/v2: draw
// returns a duration from zero up to, not including, limit.
func Jitter(draw func(limit time.Duration) time.Duration) redlock.LockerOption {
	return option{set: sources.Set{Jitter: draw}}
}

// An option is a redlock.LockerOption that package redlock asks for its Sources.
type option struct {
	redlock.LockerOption // nil: makes option one
	set                  sources.Set
}

// Sources returns what the option replaces.
func (o option) Sources() sources.Set { return o.set }
