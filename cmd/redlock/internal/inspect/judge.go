package inspect

import (
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// The states of a lock, in the words of "redlock status".
const (
	Held    = "held"
	Free    = "free"
	Partial = "partial"
	Split   = "split"
	Stuck   = "stuck"
	Unknown = "unknown"
)

// A Claim is the state of a lock, by the answers of the servers.
type Claim struct {
	State string
	Votes int    // servers that hold the value
	Value string // on most servers
	Left  time.Duration
}

// Judge returns the state of a lock, or of one of its readers.
func Judge(on []Contents) (c Claim) {
	in := redlock.Inspection{}
	votes, silent, stuck := map[string]int{}, 0, false
	for _, has := range on {
		in.Nodes = append(in.Nodes, redlock.NodeState{Value: has.Value, TTL: has.TTL, Stuck: has.TTL == protocol.NoTTL, Err: has.Err})
		switch {
		case has.Err != nil:
			silent++
		case has.TTL != 0:
			votes[has.Value]++
			if n := votes[has.Value]; n > c.Votes {
				c.Value, c.Votes = has.Value, n
			}
			stuck = stuck || has.TTL == protocol.NoTTL
		}
	}
	switch _, left, held := in.Holder(); {
	case held && left != protocol.NoTTL:
		c.State, c.Left = Held, left
	case stuck:
		c.State, c.Left = Stuck, protocol.NoTTL
	case c.Votes+silent > len(on)/2:
		c.State = Unknown
	case len(votes) == 0:
		c.State = Free
	case len(votes) == 1:
		c.State = Partial
	default:
		c.State = Split
	}
	return c
}

// ReadersOf returns the values of a lock's readers, in order.
func ReadersOf(on []Contents) []string {
	all := map[string]bool{}
	for _, c := range on {
		for _, m := range c.Readers.First {
			all[m.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// AsReader returns the Contents of each server for one reader, as if the reader held the lock alone.
func AsReader(on []Contents, value string) []Contents {
	on = slices.Clone(on)
	for i := range on {
		on[i].Value, on[i].TTL = value, 0
		for _, m := range on[i].Readers.First {
			if m.ID == value {
				on[i].TTL = m.Left
			}
		}
	}
	return on
}
