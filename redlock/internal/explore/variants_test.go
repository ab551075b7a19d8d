package explore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// A variant is a protocol with one rule less. Random schedules of it break a promise, so the rule is needed, and
// the schedules would show that it is gone. Rules of package core have mutants instead (internal/mutants/list).
type variant struct {
	name   string
	breaks string // a promise
	serves func(s *served, r *protocol.Request) protocol.Reply

	overtakes bool // requests overtake each other
	unguarded bool // votes are judged by no records
}

func (v *variant) isSet() bool { return v.breaks != "" }

// A served request is run on a server at a moment.
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

// counter is the highest token that the server has accepted, and zero for none.
func (s *served) counter(r *protocol.Request) int64 {
	n, _ := strconv.ParseInt(s.Value(s.at, r.Counter), 10, 64)
	return n
}

// count sets that.
func (s *served) count(r *protocol.Request, token int64) {
	s.SetCounter(r.Counter, float64(token))
}

// isLow reports whether the server has given the lock, and not accepted the token.
func isLow(reply *protocol.Reply) bool {
	return reply.Outcome == protocol.Granted && reply.Floor > 0
}

var variants = []variant{
	// Of tokens.
	{name: "a token that is too low counts", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		reply.Floor = 0
		return reply
	}},
	{name: "a release takes its token back", breaks: "P2", serves: func(s *served, r *protocol.Request) protocol.Reply {
		reply := s.run(r)
		if r.Op == protocol.OpReleaseFenced && s.counter(r) == r.LastToken() {
			s.count(r, r.Token-1)
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

	// Of readers.
	{name: "a writer that becomes a reader is in no set", breaks: "P1", serves: func(s *served, r *protocol.Request) protocol.Reply {
		if r.Op == protocol.OpExtendShared && s.Value(s.at, r.Key) == r.Value {
			s.hints = append(s.hints, s.Del(s.at, r.Key)...)
			return protocol.Reply{Outcome: protocol.Granted}
		}
		return s.run(r)
	}},
	{name: "the intent of a writer stays", breaks: "P6", serves: func(s *served, r *protocol.Request) protocol.Reply {
		if r.Op == protocol.OpIntend && r.TTL == 0 {
			return protocol.Reply{Outcome: protocol.Granted}
		}
		return s.run(r)
	}},

	// Of all.
	{name: "requests overtake each other", breaks: "P6", overtakes: true},
	{name: "a node that forgot votes", breaks: "P1", unguarded: true},
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
			t.Error("it breaks nothing")
		})
	}
}
