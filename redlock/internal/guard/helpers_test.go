package guard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A message takes leg each way. Locks have the TTL ttl, which is on record unless a test states
// otherwise.
const (
	leg     = time.Millisecond
	rtt     = 2 * leg
	ttl     = 10 * time.Second
	timeout = 50 * time.Millisecond
)

// A court has some servers and the time.
type court struct {
	t       *testing.T
	now     clock.Instant
	servers []*server
}

// A server stores one key for each lock, and its record, by its own clock.
type server struct {
	run    string // empty: the server does not report it
	offset time.Duration
	keys   map[string]key0
	record string
	dies   time.Duration // when the record expires, by the server's clock; zero: never
	down   bool
	silent bool // does not answer questions for its record
	links  int  // earlier connections
}

type key0 struct {
	value string
	until time.Duration
}

// newCourt returns a court of n servers. If ttl is not zero, the servers have long been in use with
// locks of ttl.
func newCourt(t *testing.T, n int, ttl time.Duration) *court {
	t.Parallel()
	return makeCourt(t, n, ttl)
}

func makeCourt(t *testing.T, n int, ttl time.Duration) *court {
	c := &court{t: t, now: clock.Instant(100 * time.Hour)}
	for i := range n {
		s := &server{run: fmt.Sprintf("run%d/own", i), keys: map[string]key0{}}
		if ttl > 0 {
			s.offset = time.Duration(i) * time.Hour // age of the records
			s.settle(c, n, ttl)
		}
		c.servers = append(c.servers, s)
	}
	return c
}

const epoch = 1e6 * time.Hour // zero point of all servers' clocks

func (s *server) clock(now clock.Instant) time.Duration {
	return (epoch + s.offset + time.Duration(now)).Truncate(time.Millisecond)
}

func (s *server) settle(c *court, nodes int, longest time.Duration) {
	now := s.clock(c.now)
	r := record.Record{
		Run: s.run, Generation: "settled" + s.run, Nodes: nodes, Born: now - 1000*time.Hour, Off: s.offset, Basis: record.Asked,
		Steps: []record.Step{{TTL: longest, Entered: now - 1000*time.Hour, Used: now}},
	}
	s.record, s.dies = r.String(), now+1<<42*time.Millisecond
}

// forget is a FLUSHALL.
func (s *server) forget() { s.keys, s.record, s.dies = map[string]key0{}, "", 0 }

func (s *server) life(now clock.Instant) time.Duration {
	if s.record == "" || s.dies == 0 {
		return 0
	}
	return max(0, s.dies-s.clock(now))
}

// vote runs a request, and reports the remaining lifetime of the record.
func (s *server) vote(req *protocol.Request, now clock.Instant) protocol.Reply {
	k, held := s.keys[req.Key]
	held = held && k.until > s.clock(now)
	reply := protocol.Reply{Outcome: protocol.Granted, Run: s.run, Life: s.life(now), Link: s.links}
	switch {
	case held && k.value != req.Value, req.Op.Extends() && !held:
		reply.Outcome = protocol.Refused
	default:
		s.keys[req.Key] = key0{req.Value, s.clock(now) + req.TTL}
	}
	return reply
}

// admit returns the record, and changes it.
func (s *server) admit(req *protocol.Request, now clock.Instant) protocol.Reply {
	a := req.Admit
	run := s.run
	if run == "" {
		run = record.Unknown
	}
	if a.New != "" && a.Old == s.record && a.Run == run {
		s.record = strings.ReplaceAll(a.New, "@", fmt.Sprint(s.clock(now).Milliseconds()))
		if a.Life > 0 {
			s.dies = s.clock(now) + a.Life
		}
	}
	return protocol.Reply{Outcome: protocol.Granted, Run: s.run, Life: s.life(now), Link: s.links,
		Epoch: &protocol.Epoch{Record: s.record, Clock: s.clock(now)}}
}

// told returns the server's present record.
func (s *server) told(t *testing.T) *record.Record {
	r, err := record.Parse(s.record)
	require.NoError(t, err)
	return r
}

// A client has a Guard over the servers of a court.
type client struct {
	*court
	guard *Guard
	cut   quorum.Set // servers that the client cannot reach
}

func (c *court) client(longest time.Duration) *client {
	drawn := 0
	terms := Terms{Nodes: len(c.servers), Key: record.Key, Timeout: timeout, MaxTTL: longest, Life: record.DrawLife, Generation: func() string {
		drawn++
		return fmt.Sprintf("drawn%d-%d", drawn, rand.Int64())
	}}
	return &client{court: c, guard: New(terms)}
}

// A ballot is a request to all nodes, with their replies.
type ballot struct {
	Trial
	req     protocol.Request
	first   []Verdict // results of Judge
	replies []protocol.Reply
	took    time.Duration // time until all votes were judged
}

func (b *ballot) outcomes() (all []protocol.Outcome) {
	for _, r := range b.replies {
		all = append(all, r.Outcome)
	}
	return all
}

// parked returns the nodes with parked votes.
func (b *ballot) parked() (nodes quorum.Set) {
	for i, r := range b.replies {
		if b.first[i] == Parked && r.Outcome == 0 {
			nodes.Add(i)
		}
	}
	return nodes
}

// early returns the nodes that voted before their TTL was on record.
func (b *ballot) early() (nodes quorum.Set) {
	for i, r := range b.replies {
		if r.Err == ErrEarly {
			nodes.Add(i)
		}
	}
	return nodes
}

// err returns the first reason that a vote does not count.
func (b *ballot) err() error {
	for _, r := range b.replies {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (b *ballot) left(t *testing.T, node int) time.Duration {
	var q *protocol.QuarantineError
	require.ErrorAs(t, b.replies[node].Err, &q)
	return q.Left
}

// values counts the locks of all tests, which run at the same time.
var values atomic.Int64

// begin makes a ballot for a new lock, and applies the changes in with.
func (c *client) begin(name string, ttl time.Duration, with ...func(*ballot)) *ballot {
	b := &ballot{first: make([]Verdict, len(c.servers)), replies: make([]protocol.Reply, len(c.servers))}
	b.req = protocol.Request{Op: protocol.OpAcquire, Key: name, Value: fmt.Sprint(values.Add(1)), TTL: ttl, Timeout: timeout, Epoch: record.Key}
	b.Trial = Trial{Request: &b.req, Start: c.now, Owner: b}
	for _, w := range with {
		w(b)
	}
	return b
}

func extends(value string, had quorum.Set) func(*ballot) {
	return func(b *ballot) { b.req.Op, b.req.Value, b.HadKey = protocol.OpExtend, value, had }
}

// asks sends a request for a new lock to all nodes, and waits for all results. with can change the
// request.
func (c *client) asks(name string, ttl time.Duration, with ...func(*ballot)) *ballot {
	b := c.begin(name, ttl, with...)
	replies := c.votes(b)
	c.now = c.now.Add(leg)
	for i := range replies {
		c.receives(b, i, replies[i])
	}
	c.runs()
	b.took = c.now.Sub(b.Start)
	return b
}

// votes makes all nodes vote.
func (c *client) votes(b *ballot) (replies []protocol.Reply) {
	c.now = c.now.Add(leg)
	for i, s := range c.servers {
		if c.cut.Has(i) || s.down {
			replies = append(replies, protocol.Reply{Outcome: protocol.Unknown, Err: errNoRecord})
			continue
		}
		replies = append(replies, s.vote(&b.req, c.now))
	}
	return replies
}

// receives passes a reply to the guard.
func (c *client) receives(b *ballot, i int, reply protocol.Reply) {
	b.first[i] = c.guard.Judge(&b.Trial, i, &reply, c.now)
	if b.first[i] != Parked {
		b.replies[i] = reply
	}
}

// runs carries out all effects, until none are left.
func (c *client) runs() {
	for {
		admits, settled := c.guard.Effects()
		if admits == nil && settled == nil {
			return
		}
		c.settles(settled)
		c.now = c.now.Add(leg)
		sent := admits[:0]
		var replies []protocol.Reply
		for _, a := range admits {
			s := c.servers[a.Node]
			switch {
			case s.silent:
			case c.cut.Has(a.Node) || s.down:
				sent, replies = append(sent, a), append(replies, protocol.Reply{Outcome: protocol.Unknown, Err: errNoRecord})
			default:
				sent, replies = append(sent, a), append(replies, s.admit(a.Request, c.now))
			}
		}
		if len(sent) == 0 {
			c.now = c.now.Add(-leg)
			continue
		}
		c.now = c.now.Add(leg)
		for i, a := range sent {
			c.guard.Record(a.Node, a.Sent, c.now, &replies[i])
		}
	}
}

func (c *client) settles(all []Settled) {
	for _, s := range all {
		s.Trial.Owner.(*ballot).replies[s.Node] = s.Reply
	}
}

func (c *court) sleep(d time.Duration) { c.now = c.now.Add(d) }

func all(n int, o protocol.Outcome) (all []protocol.Outcome) {
	for range n {
		all = append(all, o)
	}
	return all
}
