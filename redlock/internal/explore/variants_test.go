package explore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// A variant is the protocol without one of its rules. Its random schedules break a promise. This
// proves that the rule is necessary, and that the schedules notice the missing rule. Rules of
// package core have mutants instead (internal/evidence/mutants/list).
type variant struct {
	name   string
	breaks string // the broken promise
	serves func(s *served, r *protocol.Request) protocol.Reply

	overtakes bool // requests overtake each other
	writesOn  bool // a writer that becomes a reader counts as a writer until the nodes have answered
	unguarded bool // votes are not judged by records
}

func (v *variant) isSet() bool { return v.breaks != "" }

// A served request runs on a server at a moment.
type served struct {
	*sim.Store
	at     time.Duration
	client int
	hints  []sim.StoreHint
}

func (s *served) run(r *protocol.Request) protocol.Reply {
	reply, hints := s.Run(s.at, s.client, r)
	s.hints = append(s.hints, hints...)
	return reply
}

// counter returns the highest token that the server has accepted, or zero.
func (s *served) counter(r *protocol.Request) int64 {
	n, _ := strconv.ParseInt(s.Value(s.at, r.Counter), 10, 64)
	return n
}

// count sets the counter to a token.
func (s *served) count(r *protocol.Request, token int64) {
	s.SetCounter(r.Counter, float64(token))
}

// isLow reports whether the server has granted the lock without accepting the token.
func isLow(reply *protocol.Reply) bool {
	return reply.Outcome == protocol.Granted && reply.Floor > 0
}

// refusedUnless runs a request, and grants a refused one if isSo returns true.
func (s *served) refusedUnless(r *protocol.Request, op protocol.Op, isSo func() bool) protocol.Reply {
	reply := s.run(r)
	if r.Op == op && reply.Outcome == protocol.Refused && isSo() {
		reply = protocol.Reply{Outcome: protocol.Granted, Life: reply.Life}
	}
	return reply
}

var variants = []variant{
	// Tokens.
	{name: "a token that is too low counts", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		reply.Floor = 0
		return reply
	}},
	{name: "a token is accepted twice", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		isSame := r.Counter != "" && s.counter(r) == r.Token
		reply := s.run(r)
		if isSame && isLow(&reply) {
			reply.Floor = 0
		}
		return reply
	}},
	{name: "a release takes its token back", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		if r.Op == protocol.OpReleaseFenced && s.counter(r) == r.LastToken() {
			s.count(r, r.Token-1)
		}
		return reply
	}},
	{name: "the counter expires with the lock", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		if n := s.counter(r); n > 0 && r.Op == protocol.OpReleaseFenced {
			s.hints = append(s.hints, s.Del(s.at, r.Counter)...)
		}
		return reply
	}},
	{name: "a token that is too low is written", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		if isLow(&reply) {
			s.count(r, r.Token)
		}
		return reply
	}},
	{name: "the counter is the first number of a block", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		if r.Block > 1 && s.counter(r) == r.LastToken() {
			s.count(r, r.Token)
		}
		return reply
	}},
	{name: "a block is compared by its last number", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		before := s.counter(r)
		reply := s.run(r)
		if isLow(&reply) && before >= r.Token && before < r.LastToken() {
			s.count(r, r.LastToken())
			reply.Floor = 0
		}
		return reply
	}},
	{name: "an acceptance counts for the next proposal", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		if r.Op == protocol.OpRaise && s.Value(s.at, r.Key) == r.Value {
			return protocol.Reply{Outcome: protocol.Granted}
		}
		return s.run(r)
	}},

	// Readers.
	{name: "a reader comes in beside a writer", breaks: "P1", serves: func(s *served, r *protocol.Request) protocol.Reply {
		return s.refusedUnless(r, protocol.OpShare, func() bool { return true })
	}},
	{name: "each reader that leaves deletes the lock", breaks: "P1", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		if r.Op == protocol.OpReleaseShared && s.isRead(r) {
			s.hints = append(s.hints, s.Del(s.at, r.Key)...)
		}
		return reply
	}},
	{name: "the lock expires with the first reader", breaks: "P1", serves: func(s *served, r *protocol.Request) protocol.Reply {
		before := s.Keys(s.at)[r.Key]
		wasRead := s.isRead(r)
		reply := s.run(r)
		if wasRead && s.isRead(r) && before < s.Keys(s.at)[r.Key] {
			s.Set(r.Key, protocol.ReadersValue, before)
		}
		return reply
	}},
	{name: "a writer that becomes a reader is in no set", breaks: "P1", serves: func(s *served, r *protocol.Request) protocol.Reply {
		if r.Op == protocol.OpExtendShared && s.Value(s.at, r.Key) == r.Value {
			s.hints = append(s.hints, s.Del(s.at, r.Key)...)
			return protocol.Reply{Outcome: protocol.Granted}
		}
		return s.run(r)
	}},
	{name: "a writer that becomes a reader counts as a writer for longer", breaks: "P1", writesOn: true},
	{name: "the intent of a writer stays", breaks: "P6", serves: func(s *served, r *protocol.Request) protocol.Reply {
		if r.Op == protocol.OpIntend && r.TTL == 0 {
			return protocol.Reply{Outcome: protocol.Granted}
		}
		return s.run(r)
	}},

	// All locks.
	{name: "requests overtake each other", breaks: "P6", overtakes: true},
	{name: "a node that forgot votes", breaks: "P1", unguarded: true},
}

// isRead reports whether the lock has readers.
func (s *served) isRead(r *protocol.Request) bool {
	return s.Value(s.at, r.Key) == protocol.ReadersValue
}

func TestVariantsAreRefuted(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20_000) {
				if problem := newRun(seed, v).run(); strings.Contains(problem, v.breaks+": ") {
					t.Logf("seed %d: %s", seed, problem)
					return
				}
			}
			t.Error("the variant breaks no promise")
		})
	}
}

// TestMaximumOfINCRIsNotAToken: each node runs INCR, and the client takes the highest answer of a
// quorum. In some order of events, two successive holders get the same number, although the lock
// excludes them, and each client asks all three nodes.
func TestMaximumOfINCRIsNotAToken(t *testing.T) {
	t.Parallel()
	type world struct {
		counter [3]int
		holder  [3]int    // 1 + index of the client that has the node; zero: none
		got     [2][3]int // answer of each node to each client
		token   [2]int
	}
	seen := map[world]bool{}
	var twice []world
	var try func(w world)
	try = func(w world) {
		if seen[w] {
			return
		}
		if seen[w] = true; w.token[0] > 0 && w.token[0] == w.token[1] {
			twice = append(twice, w)
			return
		}
		for n := range w.counter {
			if next := w; w.holder[n] > 0 { // the key expires
				next.holder[n] = 0
				try(next)
				continue
			}
			for c := range w.got {
				if next := w; w.got[c][n] == 0 && w.token[c] == 0 {
					next.counter[n]++
					next.holder[n], next.got[c][n] = c+1, next.counter[n]
					try(next)
				}
			}
		}
		for c, got := range w.got {
			for one := range got {
				for other := range one {
					if next := w; got[one] > 0 && got[other] > 0 && w.token[c] == 0 {
						next.token[c] = max(got[one], got[other])
						try(next)
					}
				}
			}
		}
	}
	try(world{})
	require.NotEmpty(t, twice)
	t.Logf("%d of %d states, the first: %+v", len(twice), len(seen), twice[0])
}
