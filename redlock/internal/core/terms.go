package core

import (
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Group holds the settings that all keys of one Locker share. It never changes.
type Group struct {
	Nodes    int
	Lots     []uint64   // a number for each node, from its name; the home of a key depends on them
	Hinting  quorum.Set // nodes that can hint when a key changes
	Epoch    string     // key of the epoch records; empty without the memory guard
	Jitter   func(limit time.Duration) time.Duration
	NewValue func(owner string) string // returns a new value with the owner's label, if any
	Observed bool                      // report the outcome of each attempt by the effect Voted

	// For fencing tokens.
	Propose func() int64  // returns a token that the process has not proposed before: the wall clock in microseconds, or more
	Slack   time.Duration // greatest distance of a token from a node's clock; the same for all clients
}

func (g *Group) everyNode() quorum.Set { return quorum.All(g.Nodes) }

// Terms are the options of a caller. Many callers share one Terms, and it never changes.
type Terms struct {
	TTL      time.Duration
	Timeout  time.Duration // limit for each request to a node
	MaxHold  time.Duration // zero for no limit
	Renew    bool
	Fenced   bool          // the hold needs a fencing token
	Adopts   string        // value of the lock to take over; empty for a new lock. Excludes Fenced
	Owner    string        // label in the value; may be empty
	Patience time.Duration // longest wait in an outage
	Shared   bool          // the caller is a reader; see readers.go
	Fair     bool          // served in order of arrival across all processes; excludes Shared
	Permits  int           // number of permits of the name, for the value; zero for a lock
	Tag      any           // used by the owner of the Key to identify the requests of a caller
}

// newValue returns the value of a claim: random, with the number of permits and the owner's label.
func (g *Group) newValue(t *Terms) string {
	value := g.NewValue(t.Owner)
	if t.Permits == 0 {
		return value
	}
	at := min(len(value), randomLength)
	return value[:at] + " " + protocol.PermitsLabel(t.Permits) + value[at:]
}

// ownerOf returns the owner's label in a value, if any.
func ownerOf(value string) string {
	if len(value) > randomLength && value[randomLength] == ' ' {
		return value[randomLength+1:]
	}
	return ""
}

// randomLength is the length of the random part of a value, in bytes.
const randomLength = 40
