package wait

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/ticket"
)

// A stage is a process alone with one waiter and three nodes, which answer at once. Its clock moves when
// the waiter sleeps.
type stage struct {
	now, alarm clock.Instant
	over       bool
	onSleep    []func()                // what happens in each of the next sleeps, in place of the alarm
	hints      map[string]func(string) // by key, of the last node that was asked
	queue      protocol.Reply          // to questions for a place
	key        protocol.Reply          // to questions about the key
	asked      []protocol.Request
	keepsNone  int // the node that keeps no order; -1: all do as queue says
}

// Now implements clock.Clock.
func (s *stage) Now() clock.Instant { return s.now }

// AfterFunc implements clock.Clock. A Waiter has its process wake it.
func (s *stage) AfterFunc(time.Duration, func()) clock.Timer { panic("no timers here") }

func (s *stage) IsOver() bool              { return s.over }
func (s *stage) WakeAfter(d time.Duration) { s.alarm = s.now.Add(d) }
func (s *stage) Wake()                     {}
func (s *stage) HasNews() bool             { return false }
func (s *stage) IsHandedOver() bool        { return false }
func (s *stage) IsHeld() bool              { return false }
func (s *stage) Others() int               { return 0 }
func (s *stage) Cost() time.Duration       { return 0 }
func (s *stage) StandsBehind()             {}

func (s *stage) Beyond(left time.Duration) time.Duration { return left }

func (s *stage) Sleep() {
	if len(s.onSleep) > 0 {
		next := s.onSleep[0]
		s.onSleep = s.onSleep[1:]
		next()
		return
	}
	s.now = max(s.now, s.alarm)
}

// A node answers as its stage says.
type node struct {
	protocol.Node
	stage  *stage
	number int
}

func (n node) String() string { return fmt.Sprint("node ", n.number) }

// Submit implements protocol.Node.
func (n node) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	n.stage.asked = append(n.stage.asked, *req)
	switch req.Op {
	case protocol.OpQueue:
		if n.number == n.stage.keepsNone {
			to.Receive(slot, protocol.Reply{Outcome: protocol.Failed})
			return nil
		}
		to.Receive(slot, n.stage.queue)
	case protocol.OpWatch:
		to.Receive(slot, n.stage.key)
	}
	return nil
}

// Watch implements protocol.Watchable.
func (n node) Watch(key string, hint func(string)) func() {
	n.stage.hints[key] = hint
	return func() {}
}

var (
	granted = protocol.Reply{Outcome: protocol.Granted}
	refused = protocol.Reply{Outcome: protocol.Refused}
)

// newStage has a waiter that was refused and lines up. It is told that it is the first, and that the key
// is held.
func newStage() (*stage, *Waiter) {
	s := &stage{hints: map[string]func(string){}, queue: granted, key: refused, keepsNone: -1}
	nodes := []protocol.Node{node{stage: s, number: 0}, node{stage: s, number: 1}, node{stage: s, number: 2}}
	none := func(time.Duration) time.Duration { return 0 }
	w := New(Terms{
		Nodes: nodes, Voters: ballot.NewVoters(nodes, nil, none), Clock: s, Jitter: none, Timeout: time.Second, ID: "me", NoOrder: &atomic.Int64{},
		Desk: &ticket.Desk{Nodes: nodes, Key: "x", Timeout: time.Second, Wake: s.Wake, Heard: func(int) {}, Begin: func() {}, Done: func() {}},
	}, s)
	w.Lost(0, true, FirstWait)
	w.LineUp()
	return s, w
}

// leaves counts the places that were given back since the last call.
func (s *stage) leaves() (n int) {
	for _, req := range s.asked {
		if req.Op == protocol.OpQueue && req.Ticket.Leave {
			n++
		}
	}
	s.asked = nil
	return n
}

// TestAFirstThatWasOutrunKeepsItsPlaceWhenItTries: when it leaves, another becomes the first, and where
// it comes back to its old place two take themselves for the first.
func TestAFirstThatWasOutrunKeepsItsPlaceWhenItTries(t *testing.T) {
	t.Parallel()
	s, w := newStage()
	for try := range 3 {
		s.onSleep = []func(){func() { s.hints["x"]("x") }}
		plan := w.Await()
		assert.Equal(t, try >= maxFollowed, plan.IsProbe(), "try %d: the key changes often", try)
		want := 0
		if try == 0 {
			want = 1
		}
		assert.Equal(t, want, s.leaves(), "try %d", try)
		w.Lost(0, true, FirstWait)
		s.now = s.now.Add(time.Second)
	}
	w.End(false)
	assert.Equal(t, 1, s.leaves())
}

// TestANodeWithoutAnOrderDoesNotEndThatOfTheOthers: it is asked again now and then, and fails each time.
func TestANodeWithoutAnOrderDoesNotEndThatOfTheOthers(t *testing.T) {
	t.Parallel()
	s, w := newStage()
	s.keepsNone = w.order.node
	for range 20 {
		w.Await()
		assert.True(t, w.isOrdered())
		w.Lost(0, true, FirstWait)
		s.now = s.now.Add(Longest)
		w.Voters.Answered(s.keepsNone) // other questions
	}
}

// TestAHintOfAllKeysHasTheKeyLookedAt: a node gives one when it begins to give hints. To leave the order
// for it would call another for nothing.
func TestAHintOfAllKeysHasTheKeyLookedAt(t *testing.T) {
	t.Parallel()
	s, w := newStage()
	looked := false
	s.onSleep = []func(){
		func() { s.hints["x"]("") },
		func() { s.now, s.asked = max(s.now, s.alarm), nil },
		func() {
			for _, req := range s.asked {
				looked = looked || req.Op == protocol.OpWatch && req.Key == "x"
			}
			s.over = true
		},
	}
	w.Await()
	assert.True(t, looked)
	assert.Zero(t, s.leaves())
}

// TestWhereNoNodeKeepsAnOrderAllAskTheSameNode, and one again and again whether it keeps one by now.
func TestWhereNoNodeKeepsAnOrderAllAskTheSameNode(t *testing.T) {
	t.Parallel()
	s, w := newStage()
	s.queue = protocol.Reply{Outcome: protocol.Failed}
	s.onSleep = []func(){func() { s.hints["x"]("x") }}
	plan := w.Await()
	assert.True(t, plan.Probes(w.lookouts.first.node))
	places := func() (n int) {
		for _, req := range s.asked {
			if req.Op == protocol.OpQueue && !req.Ticket.Leave {
				n++
			}
		}
		s.asked = nil
		return n
	}
	assert.Equal(t, 3, places())
	w.Lost(0, true, FirstWait)
	assert.Equal(t, ballot.EveryNode, w.Await(), "without a hint")
	assert.Zero(t, places())
	s.now = s.now.Add(noOrderFor)
	w.Lost(0, true, FirstWait)
	w.Await()
	assert.Equal(t, 1, places())
}
