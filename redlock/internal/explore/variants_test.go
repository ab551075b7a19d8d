package explore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/keys"
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
	writesOn  bool // a writer that becomes a reader counts as a writer until the nodes know
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

// refusedUnless runs a request, and grants it also where it is so.
func (s *served) refusedUnless(r *protocol.Request, op protocol.Op, isSo func() bool) protocol.Reply {
	reply := s.run(r)
	if r.Op == op && reply.Outcome == protocol.Refused && isSo() {
		reply = protocol.Reply{Outcome: protocol.Granted, Life: reply.Life}
	}
	return reply
}

var variants = []variant{
	// Of tokens.
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

	// Of readers.
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

	// Of all.
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
			t.Error("it breaks nothing")
		})
	}
}

// TestWithoutItsIntentAWriterStarves, or with one that ends before the next try.
func TestWithoutItsIntentAWriterStarves(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(r *protocol.Request){
		"there is none":   func(r *protocol.Request) { r.TTL = 0 },
		"it is too short": func(r *protocol.Request) { r.TTL = min(r.TTL, time.Millisecond) },
	} {
		longest := time.Duration(0)
		v := variant{serves: func(s *served, r *protocol.Request) protocol.Reply {
			if again := *r; r.Op == protocol.OpIntend {
				change(&again)
				return s.run(&again)
			}
			return s.run(r)
		}}
		for seed := uint64(0); seed < 40 && longest <= 2*time.Second; seed++ {
			longest = max(longest, waitBehindReaders(t, seed, v))
		}
		assert.Greater(t, longest, 2*time.Second, what)
	}
}

// A fleet is three servers, and who has which of them. The stories tell what servers must refuse: each takes many
// losses that must come together, so that no random schedule comes across it.
type fleet struct {
	*testing.T
	nodes [3]*sim.Store
	at    time.Duration
}

// asks has nodes run a request, and returns how many grant it. The others do not get it.
func (f *fleet) asks(op protocol.Op, value string, nodes ...int) (granted int) {
	r := protocol.Request{Op: op, Key: name, Value: value, TTL: time.Second}
	if op != protocol.OpAcquire && op != protocol.OpRelease {
		r.Shared = &protocol.Shared{Readers: keys.Readers.Of(name), Intent: keys.Intent.Of(name)}
	}
	for _, n := range nodes {
		if reply, _ := f.nodes[n].Run(f.at, 0, &r); reply.Outcome == protocol.Granted {
			granted++
		}
	}
	return granted
}

func TestWhatServersMustRefuse(t *testing.T) {
	t.Parallel()
	const reader, other, writer = "p0v1", "p1v1", "p2v1"
	for story, tell := range map[string]func(f *fleet){
		"a reader that is not one of them extends where there are others": func(f *fleet) {
			f.asks(protocol.OpShare, other, 2)
			assert.Equal(f, 2, f.asks(protocol.OpShare, reader, 0, 1)) // the reader has it, and the third node has not heard
			f.at += time.Second / 2
			assert.Equal(f, 1, f.asks(protocol.OpExtendShared, reader, 0, 2), "else it believes to hold by the first and the third")
			f.at += time.Second * 3 / 5
			f.asks(protocol.OpReleaseShared, other, 2)
			assert.Equal(f, 2, f.asks(protocol.OpAcquire, writer, 1, 2), "a writer may hold now")
		},
		"a reader extends where it is in the set, beside a writer": func(f *fleet) {
			assert.Equal(f, 3, f.asks(protocol.OpShare, reader, 0, 1, 2))
			f.nodes[0].Del(f.at, name) // unnoticed
			f.at += time.Second / 2
			assert.Equal(f, 1, f.asks(protocol.OpAcquire, writer, 0))
			assert.Equal(f, 1, f.asks(protocol.OpExtendShared, reader, 0, 1), "else it believes to hold by the first and the second")
			f.at += time.Second * 2 / 5 // the writer's vote goes on: its answer of the third node is late
			f.at += time.Second / 5
			assert.Equal(f, 1, f.asks(protocol.OpAcquire, writer, 2), "a writer may hold now")
		},
		"the last reader deletes the lock of a writer": func(f *fleet) {
			f.asks(protocol.OpShare, reader, 0)
			f.nodes[0].Del(f.at, name)
			assert.Equal(f, 2, f.asks(protocol.OpAcquire, writer, 0, 1))
			f.asks(protocol.OpReleaseShared, reader, 0)
			assert.Equal(f, 0, f.asks(protocol.OpAcquire, other, 0), "the writer holds by it")
		},
		"a writer that became a reader leaves its value": func(f *fleet) {
			assert.Equal(f, 3, f.asks(protocol.OpAcquire, writer, 0, 1, 2))
			assert.Equal(f, 2, f.asks(protocol.OpExtendShared, writer, 0, 1)) // the third has not heard
			assert.Equal(f, 3, f.asks(protocol.OpReleaseShared, writer, 0, 1, 2))
			assert.Equal(f, 3, f.asks(protocol.OpAcquire, other, 0, 1, 2))
		},
	} {
		t.Run(story, func(t *testing.T) {
			f := &fleet{T: t}
			for i := range f.nodes {
				f.nodes[i] = sim.NewStore(i, "node")
			}
			tell(f)
		})
	}
}

// TestTheMaximumOfINCRIsNoToken: each node INCRs, and the client takes the highest answer of a quorum. In some order
// of events two clients that had the lock one after the other get the same. The lock excludes them, and either asks
// all three nodes.
func TestTheMaximumOfINCRIsNoToken(t *testing.T) {
	t.Parallel()
	type world struct {
		counter [3]int
		holder  [3]int    // 1 + the client that has the node; zero: none
		got     [2][3]int // each client's answer of each node
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
			if next := w; w.holder[n] > 0 { // it expires
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
