package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/protocol"
)

// keysOf returns the keys that a request is about.
func keysOf(req *protocol.Request) []string {
	if req.Set != nil {
		return req.Set.Keys
	}
	return []string{req.Key}
}

// A keySet is what a Server finds under the keys of a Set.
type keySet struct {
	*protocol.Set
	server  *Server
	missing []int // places of keys
	others  []int // of keys with another's value
	wrong   []int // of keys of another type
	own     []int
}

func (s *Server) keySet(set *protocol.Set) (k keySet) {
	k.Set, k.server = set, s
	for i, key := range set.Keys {
		switch e, exists := s.lookup(key); {
		case !exists:
			k.missing = append(k.missing, i)
		case e.wrong:
			k.wrong = append(k.wrong, i)
		case e.value == set.Values[i]:
			k.own = append(k.own, i)
		default:
			k.others = append(k.others, i)
		}
	}
	return k
}

// all runs an operation on several keys.
func (s *Server) all(req *protocol.Request) protocol.Reply {
	k := s.keySet(req.Set)
	switch {
	case req.Op == protocol.OpReleaseAll:
		return k.release()
	case len(k.wrong) > 0:
		return k.wrongType(k.wrong[0])
	case len(k.others) > 0:
		return k.refuse()
	case req.Op == protocol.OpAcquireAll && len(k.missing) == 0:
		return k.refusal(0)
	case req.Op != protocol.OpAcquireAll && len(k.missing) > 0:
		return k.refusal(k.missing[0])
	case req.Op == protocol.OpLookAll:
		return protocol.Reply{Outcome: protocol.Granted}
	}
	for i, key := range k.Keys {
		if slices.Contains(k.missing, i) {
			s.write(key, entry{value: k.Values[i], expires: s.wall.now() + req.TTL})
		} else {
			s.prolong(key, req.TTL)
		}
	}
	return protocol.Reply{Outcome: protocol.Granted}
}

func (k keySet) release() protocol.Reply {
	for _, i := range k.own {
		k.server.remove(k.Keys[i])
	}
	switch {
	case len(k.wrong) > 0:
		return k.wrongType(k.wrong[len(k.wrong)-1])
	case len(k.others) > 0:
		return k.refuse()
	case len(k.missing) > 0:
		return k.refusal(k.missing[0])
	}
	return protocol.Reply{Outcome: protocol.Granted}
}

// refuse tells of the key that is another's for the longest.
func (k keySet) refuse() (longest protocol.Reply) {
	for _, i := range k.others {
		r := k.refusal(i)
		if longest.Which == 0 || longest.TTL != protocol.NoTTL && (r.TTL == protocol.NoTTL || r.TTL > longest.TTL) {
			longest = r
		}
	}
	return longest
}

// refusal tells of the key in place i.
func (k keySet) refusal(i int) protocol.Reply {
	var left time.Duration
	if e, exists := k.server.lookup(k.Keys[i]); exists {
		left = k.server.left(e)
	}
	return protocol.Reply{Outcome: protocol.Refused, TTL: left, Which: i + 1}
}

func (k keySet) wrongType(i int) protocol.Reply {
	return protocol.Reply{Outcome: protocol.Failed, Err: protocol.ErrWrongType, Which: i + 1}
}
