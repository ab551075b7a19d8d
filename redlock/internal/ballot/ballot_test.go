package ballot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// letters are how tests write what a node has said: "GR.U" is four nodes of which the third is silent.
var letters = map[rune]protocol.Outcome{
	'.': 0, 'G': protocol.Granted, 'R': protocol.Refused, 'F': protocol.Failed, 'U': protocol.Unknown,
}

// stateOf returns the state in which the nodes have said what text says.
func stateOf(text string) (s State) {
	s.begin(len(text))
	for i, letter := range text {
		if o := letters[letter]; o != 0 {
			s.slots()[i].reply = &protocol.Reply{Outcome: o}
			s.Tally.Add(o)
		}
	}
	return s
}

// texts returns all texts of n of the letters.
func texts(n int, letters string) (all []string) {
	if n == 0 {
		return []string{""}
	}
	for _, rest := range texts(n-1, letters) {
		for _, letter := range letters {
			all = append(all, rest+string(letter))
		}
	}
	return all
}

// TestAVoteIsDecidedWhenNoAnswerCanChangeIt, by trying all answers of the nodes that are silent.
func TestAVoteIsDecidedWhenNoAnswerCanChangeIt(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		for _, text := range texts(n, ".GRF") {
			wins, losses := 0, 0
			for _, rest := range texts(strings.Count(text, "."), "GRF") {
				said := text
				for _, letter := range rest {
					said = strings.Replace(said, ".", string(letter), 1)
				}
				if 2*strings.Count(said, "G") > n {
					wins++
				} else {
					losses++
				}
			}
			s := stateOf(text)
			assert.Equal(t, wins == 0 || losses == 0, Decided(&s), text)
			assert.Equal(t, losses == 0, IsWon(&s), text)
		}
	}
}

// TestGoals has what each goal says of each vote.
func TestGoals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // the goals that are reached
		".....": "",
		"GG...": "",
		"GGG..": "answered decided settled",
		"GGR..": "answered split", // the silent decide, and can make no outage of it
		"GGRF.": "answered split",
		"RR...": "", // the silent can
		"RRR..": "answered decided settled",
		"RRFG.": "answered decided", // a lock that is held waits for the last
		"GFFF.": "answered decided",
		"UUU..": "answered decided", // no refusals: a lock that is held is not gone
		"GGFFF": "answered complete decided settled",
		"GGRRF": "answered complete decided settled",
		"G.":    "",
		".R":    "decided settled", // one node of two is enough against
		"GR":    "answered complete decided settled",
	} {
		s := stateOf(text)
		got := []string{}
		for name, goal := range map[string]Goal{
			"decided": Decided, "settled": Settled, "complete": Complete, "answered": Answered, "split": (*State).IsSplit,
		} {
			if goal(&s) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		assert.Equal(t, want, strings.Join(got, " "), text)
		assert.Equal(t, Decided(&s) || s.IsSplit(), DecidedOrSplit(&s), text)
	}
	s := stateOf("GR..F")
	assert.True(t, Replied(0b10011)(&s))
	assert.False(t, Replied(0b00111)(&s))
	s.Promised.Add(2)
	assert.True(t, Replied(0b00111)(&s), "a promise is a reply")
	assert.True(t, RepliedMost(0b11111)(&s), "two are silent")
	s = stateOf("G...F")
	assert.False(t, RepliedMost(0b11111)(&s))
}

// A puppet is a node that answers what and when a test says.
type puppet struct {
	asked []protocol.Receiver
	says  protocol.Outcome // zero: it is silent until answer
	after time.Duration
	err   error // of Submit
}

func (p *puppet) String() string { return fmt.Sprintf("puppet%p", p) }
func (p *puppet) Close() error   { return nil }

func (p *puppet) Submit(_ *protocol.Request, slot int, to protocol.Receiver) error {
	p.asked = append(p.asked, to)
	if p.err != nil {
		return p.err
	}
	if p.says != 0 {
		time.AfterFunc(p.after, func() { to.Receive(slot, protocol.Reply{Outcome: p.says, Run: p.String()}) })
	}
	return nil
}

// A box is a ballot whose replies are all counted.
type box struct{ Ballot }

func (b *box) Receive(i int, reply protocol.Reply) { b.CountVote(i, &reply, VoteKind{}) }

// run has a ballot of five puppets, which answer in a millisecond, run by a plan.
func run(t *testing.T, ctx context.Context, p Plan, set func(nodes []*puppet)) (b *box, asked bool, nodes []*puppet, v *Voters) {
	var of []protocol.Node
	for range 5 {
		n := &puppet{says: protocol.Granted, after: time.Millisecond}
		nodes, of = append(nodes, n), append(of, n)
	}
	set(nodes)
	v = NewVoters(of, &park.Lot{Clock: clock.NewFake(1)}, func(time.Duration) time.Duration { return 0 })
	for i := range 5 {
		v.Measured(i, time.Millisecond) // so one is waited for for six
	}
	b = &box{}
	b.Begin(v, v.lot.Clock.Now())
	asked = b.Run(ctx, p, &protocol.Request{Op: protocol.OpAcquire, Key: "x", Timeout: 100 * time.Millisecond}, b)
	return b, asked, nodes, v
}

// TestRun has how plans ask the nodes, and for how long they wait.
func TestRun(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	all := func(says protocol.Outcome, which ...int) func([]*puppet) {
		return func(nodes []*puppet) {
			for _, i := range which {
				nodes[i].says = says
			}
		}
	}
	const limit = 6 * time.Millisecond // 4 * (1 ms + 0.5 ms), after one measurement
	for name, test := range map[string]struct {
		ctx     context.Context
		plan    Plan
		set     func([]*puppet)
		refused bool // by the node that was probed
		asked   int  // nodes
		took    time.Duration
		overdue quorum.Set
	}{
		"all grant":                     {set: all(0), asked: 5, took: time.Millisecond},
		"two are silent":                {set: all(0, 0, 1), asked: 5, took: time.Millisecond},
		"three are silent":              {set: all(0, 0, 1, 2), asked: 5, took: 100 * time.Millisecond},
		"a split vote is waited for":    {set: func(n []*puppet) { all(protocol.Refused, 0, 1)(n); all(0, 2)(n) }, asked: 5, took: 100 * time.Millisecond},
		"a split vote is given up":      {plan: Plan{GiveUpSplit: true}, set: func(n []*puppet) { all(protocol.Refused, 0, 1)(n); all(0, 2)(n) }, asked: 5, took: limit},
		"the context has ended":         {ctx: ended, set: all(0), asked: 5},
		"a probe is refused":            {plan: Probe(3), set: all(protocol.Refused, 3), refused: true, asked: 1, took: time.Millisecond},
		"a probe is granted":            {plan: Probe(3), set: all(0), asked: 5, took: 2 * time.Millisecond},
		"a probe fails":                 {plan: Probe(3), set: all(protocol.Failed, 3), asked: 5, took: 2 * time.Millisecond},
		"a probe is silent":             {plan: Probe(3), set: all(0, 3), asked: 5, took: limit + time.Millisecond, overdue: quorum.Of(3)},
		"a probe cannot be sent":        {plan: Probe(3), set: func(n []*puppet) { n[3].err = errors.New("closed") }, asked: 5, took: time.Millisecond},
		"a probe, and the context ends": {ctx: ended, plan: Probe(3), set: all(0), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := test.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				start := time.Now()
				b, ok, nodes, v := run(t, ctx, test.plan, test.set)
				assert.Equal(t, test.refused, !ok)
				assert.Equal(t, test.took, time.Since(start))
				asked := 0
				for _, n := range nodes {
					asked += len(n.asked)
				}
				assert.Equal(t, test.asked, asked)
				assert.Equal(t, test.overdue, v.Overdue())
				time.Sleep(time.Second) // what comes late counts
				s := b.State()
				for i, n := range nodes {
					if len(n.asked) > 0 && n.err == nil {
						assert.Equal(t, n.says, s.Reply(i).Outcome, "node %d", i)
					}
				}
			})
		})
	}
}

// TestEachVoteIsInTheStateOrHeard, whenever somebody begins to listen.
func TestEachVoteIsInTheStateOrHeard(t *testing.T) {
	t.Parallel()
	v := NewVoters(make([]protocol.Node, 5), &park.Lot{Clock: clock.System}, nil)
	for before := range 6 {
		var b Ballot
		b.Begin(v, 0)
		var heard quorum.Set
		seen := b.State()
		for i := range 5 {
			if i == before {
				seen = b.Listen()
			}
			c, ok := b.CountVote(i, &protocol.Reply{Outcome: protocol.Granted}, VoteKind{})
			require.True(t, ok)
			assert.Equal(t, i == 4, c.IsLast)
			if c.IsHeard {
				heard.Add(i)
			}
			_, ok = b.CountVote(i, &protocol.Reply{Outcome: protocol.Refused}, VoteKind{})
			assert.False(t, ok, "a node votes once")
		}
		if before == 5 {
			seen = b.Listen()
		}
		assert.Equal(t, quorum.All(5), heard|seen.With(protocol.Granted))
		assert.Zero(t, heard&seen.With(protocol.Granted))
	}
}

// TestPromisesAreEnteredByAQuorum, and not where the ballot was lost, or at once.
func TestPromisesAreEnteredByAQuorum(t *testing.T) {
	t.Parallel()
	v := NewVoters([]protocol.Node{&puppet{}, &puppet{}, &puppet{}, &puppet{}, &puppet{}}, &park.Lot{Clock: clock.System}, nil)
	begin := func() *Ballot { b := &Ballot{}; b.Begin(v, 0); return b }

	b := begin()
	b.Examine(0)
	b.Promise(0, false)
	b.Promise(1, false)
	s := b.State()
	assert.Zero(t, s.Judging, "two of five")
	assert.EqualValues(t, 0b00011, s.Unjudged())
	b.CountVote(2, &protocol.Reply{Outcome: protocol.Granted}, VoteKind{})
	s = b.State()
	assert.True(t, s.IsPromised())
	assert.EqualValues(t, 0b00011, s.Judging, "node 2 has its TTL on record")
	b.CountVote(0, &protocol.Reply{Outcome: protocol.Granted}, VoteKind{})
	s = b.State()
	assert.EqualValues(t, 0b00010, s.Judging)

	b = begin()
	b.Close()
	for i := range 5 {
		assert.False(t, b.Promise(i, false), "it was lost")
	}

	b = begin()
	assert.True(t, b.Promise(0, true), "at once")

	b = begin()
	assert.False(t, b.Promise(0, false))
	assert.False(t, b.Promise(1, false))
	assert.True(t, b.Promise(2, false))
	b.Close()
	s = b.State()
	assert.EqualValues(t, 0b111, s.Judging, "they are being entered, though it was lost meanwhile")
}
