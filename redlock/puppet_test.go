package redlock_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// An answer is the reaction of a puppet to a request.
type answer struct {
	outcome protocol.Outcome
	after   time.Duration // time until the reply
	ttl     time.Duration
	err     error
	floor   int64
	run     string
	free    []int
	unsent  bool // Submit fails with err
	silent  bool // no reply before Close
}

// A puppet is a Node whose answers come from a test.
type puppet struct {
	name   string
	answer func(op protocol.Op, nth int) answer // nth counts requests of this operation from one

	mu     sync.Mutex
	got    []protocol.Request
	at     []time.Time
	closed int
	open   []func() // replies for Close to send
}

func (p *puppet) String() string { return p.name }

func (p *puppet) Submit(req *protocol.Request, slot int, to protocol.Receiver) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got, p.at = append(p.got, *req), append(p.at, time.Now())
	nth := 0
	for _, r := range p.got {
		if r.Op == req.Op {
			nth++
		}
	}
	switch a := p.answer(req.Op, nth); {
	case a.unsent:
		return a.err
	case a.silent:
		p.open = append(p.open, func() { to.Receive(slot, protocol.Reply{Outcome: protocol.Unknown}) })
	default:
		time.AfterFunc(a.after, func() {
			to.Receive(slot, protocol.Reply{Outcome: a.outcome, TTL: a.ttl, Err: a.err, Floor: a.floor, Run: a.run, Free: a.free})
		})
	}
	return nil
}

func (p *puppet) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed++
	for _, reply := range p.open {
		go reply()
	}
	p.open = nil
	return nil
}

// requests returns the requests of one operation, and their times.
func (p *puppet) requests(op protocol.Op) (reqs []protocol.Request, at []time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.got {
		if r.Op == op {
			reqs, at = append(reqs, r), append(at, p.at[i])
		}
	}
	return reqs, at
}

// puppets returns n puppets with the same answers, and a Locker over them.
func puppets(t *testing.T, n int, reply func(node int, op protocol.Op, nth int) answer, opts ...redlock.LockerOption) ([]*puppet, *redlock.Locker) {
	t.Helper()
	ps, nodes := make([]*puppet, n), make([]protocol.Node, n)
	for i := range n {
		ps[i] = &puppet{name: "puppet" + string(rune('1'+i))}
		ps[i].answer = func(op protocol.Op, nth int) answer { return reply(i, op, nth) }
		nodes[i] = ps[i]
	}
	l, err := redlock.New(nodes, append([]redlock.LockerOption{sim.Clock(clock.NewFake(1)), redlock.MemoryGuard(false)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return ps, l
}

// The kinds of answers to a vote. The faults differ in the keys that the node may hold.
var (
	grants  = answer{outcome: protocol.Granted}
	refuses = answer{outcome: protocol.Refused}
	faults  = []answer{
		{outcome: protocol.Failed, err: errors.New("broken")},
		{outcome: protocol.Unknown, err: errors.New("no reply")},
		{unsent: true, err: errors.New("not connected")},
		{silent: true},
	}
)
