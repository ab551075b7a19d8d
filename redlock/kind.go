package redlock

import (
	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
)

// A kind is how an acquisition gets one kind of lock: exclusive, reader (sharing.go) or semaphore
// (permits.go). What lines, handovers and sets make of the kind follows from settings.holders.
type kind interface {
	// line is the key of the line in which callers of this process wait for the lock of a key.
	line(key string) string
	// wait is for callers that wait for as long as it takes.
	wait(*acquisition) (*Lock, error)
	// try asks the nodes by the plan, and waits for no holder.
	try(*acquisition, ballot.Plan) (*Lock, error)
	// claim is what the next vote puts on the nodes.
	claim(*acquisition, clock.Instant) claim
	// open gives a session that has just been won its holder, and returns the caller's Lock.
	open(*session, *acquisition, winning) *Lock
}

// kind is that of the lock.
func (a *acquisition) kind() kind {
	switch k := a.settings.holders(); k {
	case anyNumber:
		return reader{}
	case 1:
		return exclusive{}
	default:
		return semaphore{k: k}
	}
}

// winning is when a session was won.
type winning struct {
	since clock.Instant // the vote began
	now   clock.Instant
}

// exclusive is the kind of lock that one caller holds alone. The others are as it is but for what they
// say.
type exclusive struct{}

func (exclusive) line(key string) string { return key }

func (exclusive) wait(a *acquisition) (*Lock, error) { return a.inLine() }

func (exclusive) try(a *acquisition, plan ballot.Plan) (*Lock, error) { return a.attempt(plan) }

func (exclusive) claim(a *acquisition, now clock.Instant) claim { return a.newClaim(a.key, now) }

func (exclusive) open(s *session, a *acquisition, won winning) *Lock {
	k := a.newLock(s, won.now)
	k.tenure.Since = won.since
	s.occupy(&k.hold, won.now)
	s.issueToken(&k.hold)
	return k
}
