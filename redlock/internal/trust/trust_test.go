package trust_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/trust"
)

// A message takes leg each way; locks have the TTL ttl, which is on record where a test does not say
// otherwise.
const (
	leg = time.Millisecond
	rtt = 2 * leg
	ttl = 10 * time.Second
)

// A client is the guard of one process, and what it asks with. There is no Locker.
type client struct {
	voters *ballot.Voters
	guard  *trust.Guard
	config trust.Config
}

// court simulates three servers that have long been in use, and one client.
func court(t *testing.T, test func(t *testing.T, w *sim.World, c *client)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(1, 3)
		w.SetNet(sim.Fixed(leg))
		for _, s := range w.Servers() {
			s.Settle(3, ttl)
		}
		test(t, w, newClient(w))
	})
}

func newClient(w *sim.World) *client {
	of := w.NewClient(1)
	config := trust.Config{Nodes: of.Nodes(), Clock: of.Clock(), Key: record.Key, Timeout: 50 * time.Millisecond, MaxTTL: ttl}
	lot := &park.Lot{Clock: of.Clock()}
	return &client{ballot.NewVoters(config.Nodes, lot, func(time.Duration) time.Duration { return 0 }), trust.New(config), config}
}

// A poll is a ballot whose votes are judged.
type poll struct {
	ballot.Ballot
	trial trust.Trial
	req   protocol.Request
	had   bool // HadKey

	mu       sync.Mutex
	verdicts []trust.Verdict
}

func (p *poll) Request() *protocol.Request { return &p.req }
func (p *poll) HadKey(int) bool            { return p.had }

func (p *poll) Receive(i int, reply protocol.Reply) {
	verdict := p.trial.Judge(i, &reply)
	p.mu.Lock()
	p.verdicts = append(p.verdicts, verdict)
	p.mu.Unlock()
	if verdict != trust.NotYet {
		p.Count(i, &reply)
	}
}

func (p *poll) Count(i int, reply *protocol.Reply) {
	if c, _ := p.CountVote(i, reply, ballot.VoteKind{IsPromise: reply.Err == trust.ErrEarly}); c.IsDue {
		p.trial.Proceed()
	}
}

// asks asks all nodes for a lock, or what op is, and waits for all answers.
func (c *client) asks(op protocol.Op, name, value string, ttl time.Duration, had bool) *poll {
	p := &poll{had: had, req: protocol.Request{Op: op, Key: name, Value: value, TTL: ttl, Timeout: c.config.Timeout, Epoch: c.config.Key}}
	p.Begin(c.voters, c.config.Clock.Now())
	p.trial.Begin(c.guard, p)
	p.Ask(c.voters.All(), &p.req, p)
	p.Wait(context.Background(), time.Second, ballot.Complete)
	return p
}

// said is what came of it: the nodes' outcomes, and the first error.
func (p *poll) said() (outcomes []protocol.Outcome, err error) {
	s := p.State()
	for i := range s.Len() {
		reply := s.Reply(i)
		if outcomes = append(outcomes, reply.Outcome); err == nil {
			err = reply.Err
		}
	}
	return outcomes, err
}

func all(o protocol.Outcome) []protocol.Outcome { return []protocol.Outcome{o, o, o} }

// TestAVoteWaitsForItsRecordOnce: the first is parked until the record has been read, and costs a
// round trip more. What the record covers costs nothing.
func TestAVoteWaitsForItsRecordOnce(t *testing.T) {
	court(t, func(t *testing.T, _ *sim.World, c *client) {
		start := time.Now()
		p := c.asks(protocol.OpAcquire, "x", "1", ttl, false)
		outcomes, _ := p.said()
		assert.Equal(t, all(protocol.Granted), outcomes)
		assert.Equal(t, []trust.Verdict{trust.NotYet, trust.NotYet, trust.NotYet}, p.verdicts)
		assert.Equal(t, 2*rtt, time.Since(start))

		start = time.Now()
		p = c.asks(protocol.OpAcquire, "y", "1", ttl, false)
		outcomes, _ = p.said()
		assert.Equal(t, all(protocol.Granted), outcomes)
		assert.Equal(t, []trust.Verdict{trust.Counts, trust.Counts, trust.Counts}, p.verdicts)
		assert.Equal(t, rtt, time.Since(start))
		assert.Zero(t, c.guard.Waiting())
	})
}

// TestAServerThatForgotHasNoVoteForATTL, and has one again after that.
func TestAServerThatForgotHasNoVoteForATTL(t *testing.T) {
	for name, forget := range map[string]func(s *sim.Server){
		"flushed":   (*sim.Server).Flush,
		"restarted": func(s *sim.Server) { s.Flush(); s.Crash(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			court(t, func(t *testing.T, w *sim.World, c *client) {
				c.asks(protocol.OpAcquire, "x", "1", ttl, false)
				time.Sleep(time.Second)
				forget(w.Servers()[0])
				time.Sleep(time.Second)
				var q *protocol.QuarantineError
				outcomes, err := c.asks(protocol.OpAcquire, "y", "1", ttl, false).said()
				assert.Equal(t, []protocol.Outcome{protocol.Unknown, protocol.Granted, protocol.Granted}, outcomes)
				require.ErrorAs(t, err, &q)
				assert.InDelta(t, ttl, q.Left, float64(ttl/4))
				time.Sleep(q.Left - 100*time.Millisecond)
				outcomes, _ = c.asks(protocol.OpAcquire, "z", "1", ttl, false).said()
				assert.Equal(t, protocol.Unknown, outcomes[0], "still")
				time.Sleep(200 * time.Millisecond)
				outcomes, err = c.asks(protocol.OpAcquire, "a", "1", ttl, false).said()
				assert.Equal(t, all(protocol.Granted), outcomes, "%v", err)
			})
		})
	}
}

// TestATTLIsEnteredBeforeVotesCount: those that were given before do not, and the next ones do.
func TestATTLIsEnteredBeforeVotesCount(t *testing.T) {
	court(t, func(t *testing.T, _ *sim.World, c *client) {
		outcomes, err := c.asks(protocol.OpAcquire, "x", "1", 6*ttl, false).said()
		assert.Equal(t, all(protocol.Unknown), outcomes)
		assert.Equal(t, trust.ErrEarly, err)
		outcomes, _ = c.asks(protocol.OpAcquire, "y", "1", 6*ttl, false).said()
		assert.Equal(t, all(protocol.Granted), outcomes)
	})
}

// TestALockThatIsRefusedEntersNothing: its TTL would cost others a quarantine.
func TestALockThatIsRefusedEntersNothing(t *testing.T) {
	court(t, func(t *testing.T, w *sim.World, c *client) {
		for _, s := range w.Servers()[:2] {
			s.Set("x", "another's", time.Hour)
		}
		records := func() (all []string) {
			for _, s := range w.Servers() {
				all = append(all, s.Keys()[record.Key])
			}
			return all
		}
		before := records()
		p := c.asks(protocol.OpAcquire, "x", "1", 6*ttl, false)
		s := p.State()
		assert.EqualValues(t, 0b100, s.Unjudged(), "it waits for a quorum of promises")
		p.Close()
		time.Sleep(time.Second)
		assert.Equal(t, before, records())
		assert.Zero(t, c.guard.Waiting())
	})
}

// TestAnExtensionCountsWhereTheKeyWasKnown, also in quarantine: the node need not remember more than
// that. Where it was not known, the key may have come there since.
func TestAnExtensionCountsWhereTheKeyWasKnown(t *testing.T) {
	for _, had := range []bool{true, false} {
		known := func(t *testing.T, w *sim.World, c *client) {
			c.asks(protocol.OpAcquire, "x", "1", ttl, false)
			time.Sleep(time.Second)
			s := w.Servers()[0]
			s.Flush()
			s.Set("x", "1", ttl)
			c.asks(protocol.OpExtend, "x", "1", ttl, had) // its TTL has to be entered anew
			outcomes, _ := c.asks(protocol.OpExtend, "x", "1", ttl, had).said()
			assert.Equal(t, had, outcomes[0] == protocol.Granted)
			assert.Equal(t, protocol.Granted, outcomes[1])
		}
		t.Run(map[bool]string{true: "known", false: "not known"}[had], func(t *testing.T) { court(t, known) })
	}
}

// TestAVoteWhoseRecordCannotBeReadIsUnknown, and is parked no longer than the question.
func TestAVoteWhoseRecordCannotBeReadIsUnknown(t *testing.T) {
	court(t, func(t *testing.T, w *sim.World, c *client) {
		w.SetNet(sim.Net{Patience: 300 * time.Millisecond, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Op == protocol.OpAdmit && l.Node == 0
		}})
		outcomes, err := c.asks(protocol.OpAcquire, "x", "1", ttl, false).said()
		assert.Equal(t, []protocol.Outcome{protocol.Unknown, protocol.Granted, protocol.Granted}, outcomes)
		assert.ErrorContains(t, err, "its memory could not be checked")
		assert.Zero(t, c.guard.Waiting())
	})
}
