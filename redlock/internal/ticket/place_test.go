package ticket

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A node answers when the test says so.
type node struct {
	asked   []ask
	refuses bool // requests, without an answer
	watcher func(key string)
	watched string
}

type ask struct {
	req *protocol.Request
	i   int
	to  protocol.Receiver
}

func (n *node) String() string { return "node" }
func (n *node) Close() error   { return nil }
func (n *node) Submit(r *protocol.Request, i int, to protocol.Receiver) error {
	if n.refuses {
		return assert.AnError
	}
	n.asked = append(n.asked, ask{r, i, to})
	return nil
}

func (n *node) Watch(key string, f func(string)) func() {
	n.watched, n.watcher = key, f
	return func() { n.watched, n.watcher = "", nil }
}

// answer answers the question with that number, counted from zero.
func (n *node) answer(question int, o protocol.Outcome, others int) {
	a := n.asked[question]
	a.to.Receive(a.i, protocol.Reply{Outcome: o, Others: others})
}

// A desk is a Desk at some nodes, and what it was told.
type desk struct {
	Desk
	nodes []*node
	wakes int
	heard []int
	open  int // requests and places that somebody waits for
}

func newDesk(nodes ...*node) *desk {
	d := &desk{nodes: nodes}
	d.Desk = Desk{
		Key: "k", Wake: func() { d.wakes++ }, Heard: func(n int) { d.heard = append(d.heard, n) },
		Begin: func() { d.open++ }, Done: func() { d.open-- },
	}
	for _, n := range nodes {
		d.Nodes = append(d.Nodes, n)
	}
	return d
}

func TestAStandingIsTheAnswerToTheLastQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(&node{}, &node{refuses: true})
	n, p := d.nodes[0], d.Take("me")
	assert.False(t, p.Standing().IsKnown(), "nobody was asked")
	p.Ask(0, 0)
	p.Ask(0, 0)
	n.answer(0, protocol.Granted, 3)
	assert.False(t, p.Standing().IsKnown(), "an answer to a question before the last")
	n.answer(1, protocol.Refused, 1)
	assert.True(t, p.Standing().IsSecond())
	n.answer(0, protocol.Granted, 3)
	assert.True(t, p.Standing().IsBehind(), "an older answer that comes late changes nothing")
	assert.Equal(t, 3, d.wakes)
	p.Ask(1, 0)
	assert.True(t, p.Standing().HasFailed(), "a node that takes no question")
}

func TestWhatAnAnswerSays(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		outcome                          protocol.Outcome
		others                           int
		isFirst, isBehind, isSecond, bad bool
	}{
		{protocol.Granted, 0, true, false, false, false},
		{protocol.Granted, 1, true, false, false, false},
		{protocol.Refused, 1, false, true, true, false},
		{protocol.Refused, 2, false, true, false, false},
		{protocol.Failed, 0, false, false, false, true},
		{protocol.Unknown, 1, false, false, false, true},
		{0, 0, false, false, false, false},
	} {
		s := Standing{Outcome: row.outcome, Others: row.others}
		got := []bool{s.IsFirst(), s.IsBehind(), s.IsSecond(), s.HasFailed(), s.IsKnown()}
		assert.Equal(t, []bool{row.isFirst, row.isBehind, row.isSecond, row.bad, row.outcome != 0}, got, "%+v", row)
	}
}

// TestACallIsHeardUntilTheNextQuestion, so that what it says is asked about once.
func TestACallIsHeardUntilTheNextQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(&node{})
	n, p := d.nodes[0], d.Take("me")
	p.Listen(0)
	assert.Equal(t, keys.Call(keys.Queue.Of("k"), "me"), n.watched)
	assert.Equal(t, protocol.OpWatch, n.asked[0].req.Op)
	n.watcher(n.watched)
	assert.True(t, p.IsCalled())
	assert.Equal(t, 1, d.wakes)
	p.Ask(0, 0)
	assert.False(t, p.IsCalled())
	p.Unlisten()
	assert.Nil(t, n.watcher)
}

// TestAPlaceIsGivenBackWhereItMayBe, and only there, and nobody waits for a node that takes no request.
func TestAPlaceIsGivenBackWhereItMayBe(t *testing.T) {
	t.Parallel()
	d := newDesk(&node{}, &node{}, &node{})
	p := d.Take("me")
	p.Ask(0, 0)
	p.Ask(2, 0)
	d.nodes[2].refuses = true
	p.Leave(1, false)
	p.End(true)
	assert.Equal(t, 1, d.open, "the answer of the first node")
	assert.Empty(t, d.nodes[1].asked, "which was not asked for a place")
	last := d.nodes[0].asked[1].req.Ticket
	assert.True(t, last.Leave && last.Overtakes && last.ID == "me")
	d.nodes[0].answer(1, protocol.Granted, 4)
	assert.Zero(t, d.open)
	assert.Equal(t, []int{4}, d.heard, "who is still there")
}

func TestACountTakesNoPlace(t *testing.T) {
	t.Parallel()
	var told []int
	n := &node{}
	c := NewCount("k", 0, func(others int) { told = append(told, others) })
	for range 3 {
		c.Ask(n)
	}
	n.answer(0, protocol.Granted, 2)
	n.answer(1, protocol.Failed, 0)
	n.answer(2, protocol.Granted, 0)
	assert.Equal(t, []int{2, 0}, told)
	assert.Empty(t, n.asked[0].req.Ticket.ID)
	assert.True(t, n.asked[0].req.Ticket.Leave)
}
