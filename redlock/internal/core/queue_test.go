package core

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// TestQueue plays one story of a waiting process per row. The process has already asked for a ticket
// and about the key. Each arrow is followed by the actions of the queue, with their target nodes. The
// home of the key is the node "one"; "two" and "three" replace it in this order. A row may begin with
// the candidate: "fair", a "reader", or "held" if the process also holds the lock.
//
//   - "first 2" and "behind 2" are answers of the home, with the number of other processes. "none"
//     is the answer of a node that keeps no order.
//   - "free" and "taken 30ms" are answers about the key, from all nodes or from the named ones.
//     "broken" is a failure.
//   - "hint", "call" and "doubt" arrive without a question.
//   - "lost to one two" is a lost attempt that these nodes refused.
//   - After "other" another caller waits in place of the first. After "ends" no caller waits.
//   - "+5ms" lets time pass. Nodes answer within 1 ms, and have a timeout of 100 ms.
func TestQueue(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]string{
		// The ticket.
		"a process that was called asks again":             "first 0 > ; call > ticket@one key@one",
		"a call is not forgotten that comes while it asks": "call > ; behind 1 > withdraw ticket@one key@one",
		"nor is a doubt":                                            "doubt > ; first 0 > ticket@one key@one",
		"a doubt makes it ask again":                                "behind 2 > withdraw; doubt > ticket@one",
		"one behind renews its ticket after a while":                "behind 1 > withdraw; taken 1s > ; +19ms > ; +1ms > ticket@one key@one",
		"one that is far behind does not watch the key":             "behind 3 > withdraw; +40ms > ticket@one; behind 1 > withdraw key@one",
		"a silent home is passed over":                              "+4ms > ; +1ms > ticket@two key@two",
		"a node that keeps no order is passed over":                 "none > ticket@two key@two",
		"if no node keeps an order, each process acts as the first": "none > ticket@two key@two; none > ticket@three key@three; none > key@one; free > attempt leave@two leave@three leave@one",
		"the tickets of a process end with its wait":                "none > ticket@two key@two; first 0 > ; ends > leave@two leave@one",
		// The first.
		"the first makes an attempt when the key is free, and leaves": "taken 1s > ; first 0 > ; hint > attempt leave@one",
		"it does not matter which answer comes first":                 "free > ; first 0 > attempt leave@one",
		"it keeps its ticket if the hint may be that of a renewal":    "first 0 > ; taken 700ms > ; hint > attempt",
		"it makes an attempt when the key must have expired":          "first 0 > ; taken 4ms > ; +4ms > ; +1ms > attempt",
		"it watches a second node soon":                               "first 0 > ; taken 1s > ; +9ms > ; +1ms > key@two",
		"it makes an attempt if there is no news for long":            "first 0 > ; taken 1s > ; +10ms > key@two; +89ms > ; +1ms > attempt",
		// Those behind.
		"one behind leaves a free key to the first":                  "behind 1 > withdraw; free > ",
		"it asks all nodes, and takes the key if the first does not": "behind 1 > withdraw; free > ; +6ms > ; +1ms > ticket@one key@all; behind 1 > withdraw; free one > ; free two > attempt; ends > leave@one(overtakes)",
		"it does not if one node lacks a key that others hold":       "behind 1 > withdraw; free > ; +6ms > ; +1ms > ticket@one key@all; behind 1 > withdraw; free one > ; taken 1s two three > ",
		"each of two before it has its time":                         "behind 2 > withdraw; free > ; +12ms > ; +1ms > ticket@one; behind 1 > withdraw key@all",
		"a hint alone does not make it take the key":                 "behind 1 > withdraw; hint > ; +7ms > ticket@one key@one",
		"a hint makes the time of those before it begin again":       "behind 1 > withdraw; free > ; +5ms > ; hint > ; +2ms > ticket@one key@one; behind 1 > withdraw; free > ",
		// A lost attempt.
		"it asks for another ticket, and pauses":                    "first 0 > ; free > attempt leave@one; lost to one two > ticket@one key@one; first 0 > ; free > ; +999us > ; +1us > attempt leave@one",
		"a node is not believed that calls free what others hold":   "first 0 > ; free > attempt leave@one; lost to two three > ticket@one key@two",
		"a node is not believed that does not answer about the key": "first 0 > ; broken > ; +10ms > key@two",
		// Fair callers.
		"a Fair caller keeps its ticket in its attempt":           "fair; first 0 > ; free > attempt; lost to one two > ticket@one key@one",
		"it takes no key out of turn":                             "fair; behind 1 > withdraw; free > ; +19ms > ; +1ms > ticket@one key@all",
		"a first that is called asks again":                       "fair; call > ; first 0 > ticket@one key@one",
		"beside a lock of its process it makes no attempt":        "fair; held; first 0 > horizon; free > ; hint > ",
		"another caller replaces the ticket of one that has left": "fair; behind 1 > withdraw; other > ticket@one(replaces) key@one",
		// Readers.
		"a reader makes an attempt when the key has readers alone": "reader; first 0 > ; free > attempt leave@one",
		"one behind a writer does not join them":                   "reader; free > ; behind 1 > withdraw; +19ms > ; +1ms > ticket@one readers@one",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueueTest(t)
			for line := range strings.SplitSeq(story, "; ") {
				q.run(line)
			}
		})
	}
}

// A queueTest is a queue of a process that waits for the key x.
type queueTest struct {
	*testing.T
	*queue
	situation
	nodes []string // by their index
}

func newQueueTest(t *testing.T) *queueTest {
	g := newKey(t).Group
	ids := 0
	g.NewValue = func(string) string { ids++; return strconv.Itoa(ids) }
	q := &queueTest{T: t, queue: &queue{}, nodes: make([]string, g.Nodes)}
	q.situation = situation{now: clock.Instant(time.Hour), group: g, key: "x", past: &past{pace: time.Millisecond}, timeout: 100 * time.Millisecond, ttl: time.Second}
	q.arrived = q.now
	drawn := quorum.Set(0)
	for _, name := range []string{"one", "two", "three"} {
		node := g.draw("x", drawn)
		q.nodes[node] = name
		drawn.Add(node)
	}
	return q
}

// run runs a step of a row, after the process has joined the queue.
func (q *queueTest) run(line string) {
	step, want, isStep := strings.Cut(line, " >")
	switch {
	case step == "fair":
		q.fair = true
	case step == "reader":
		q.shared = true
	case step == "held":
		q.held = true
	case q.id == "" && q.shared:
		assert.Equal(q, "hints ticket@one readers@one", strings.Join(q.tell(event{kind: joined}), " "))
	case q.id == "":
		assert.Equal(q, "hints ticket@one key@one", strings.Join(q.tell(event{kind: joined}), " "))
	}
	if isStep {
		assert.Equal(q, strings.TrimSpace(want), strings.Join(q.does(strings.Fields(step)), " "), line)
	}
}

// does runs a step, and returns the actions of the queue.
func (q *queueTest) does(words []string) (asks []string) {
	number := func() int {
		n, err := strconv.Atoi(words[1])
		require.NoError(q, err)
		return n
	}
	ticket := event{kind: ticketAnswered, number: q.ticket.question, start: q.now}
	switch words[0] {
	case "lost":
		e := event{kind: attemptLost}
		for _, name := range words[2:] {
			e.refused.Add(slices.Index(q.nodes, name))
		}
		asks = q.tell(e)
	case "first":
		ticket.answer = &Answer{Node: q.home, Outcome: protocol.Granted, Others: number()}
		asks = q.tell(ticket)
	case "behind":
		ticket.answer = &Answer{Node: q.home, Outcome: protocol.Refused, Others: number()}
		asks = q.tell(ticket)
	case "none":
		ticket.answer = &Answer{Node: q.home, Outcome: protocol.Failed}
		asks = q.tell(ticket)
	case "free":
		return q.answers(nil, words[1:])
	case "taken":
		left, err := time.ParseDuration(words[1])
		require.NoError(q, err)
		return q.answers(&Answer{Outcome: protocol.Refused, TTL: left}, words[2:])
	case "broken":
		return q.answers(&Answer{Outcome: protocol.Failed}, words[1:])
	case "hint":
		asks = q.tell(event{kind: hinted})
	case "ends":
		return q.tell(event{kind: left})
	case "other":
		q.arrived++
	case "call":
		return q.tell(event{kind: called, id: q.id})
	case "doubt":
		return q.tell(event{kind: doubted})
	default:
		d, err := time.ParseDuration(words[0])
		require.NoError(q, err)
		for end := q.now.Add(d); q.now < end; {
			if q.now = end; q.due() <= end {
				q.now = q.due()
				asks = append(asks, q.tell(event{kind: timerFired})...)
				asks = append(asks, q.tell(event{kind: changed})...)
			}
		}
		return asks
	}
	return append(asks, q.tell(event{kind: changed})...)
}

// answers delivers the same answer about the key from each of the named nodes, or from all
// addressees if names is empty.
func (q *queueTest) answers(a *Answer, names []string) (asks []string) {
	for node, name := range q.nodes {
		if !slices.Contains(asks, "attempt") && q.watch.open.Has(node) && (len(names) == 0 || slices.Contains(names, name)) {
			asks = append(asks, q.tell(event{kind: keyAnswered, number: q.watch.question, node: node, answer: a})...)
			asks = append(asks, q.tell(event{kind: changed})...)
		}
	}
	return asks
}

// names returns the names of nodes.
func (q *queueTest) names(nodes quorum.Set) string {
	for node, name := range q.nodes {
		if nodes == quorum.Of(node) {
			return name
		}
	}
	assert.Equal(q, quorum.All(len(q.nodes)), nodes)
	return "all"
}

// tell applies an event to the queue.
func (q *queueTest) tell(e event) (asks []string) {
	for _, a := range q.step(&e, &q.situation) {
		text := [...]string{"hints", "ticket", "leave", "key", "attempt", "withdraw", "horizon"}[a.kind]
		if a.kind == forTicket || a.kind == forLeave || a.kind == forKey {
			if a.readers {
				text = "readers"
			}
			text += "@" + q.names(a.nodes)
			if a.ticket.Replaces != "" {
				text += "(replaces)"
			}
			if a.ticket.Overtakes {
				text += "(overtakes)"
			}
		}
		asks = append(asks, text)
	}
	return asks
}

// TestDoubtDuringAQuestionIsKept: during a question about the ticket, a call may have been lost.
func TestDoubtDuringAQuestionIsKept(t *testing.T) {
	for _, isDoubted := range []bool{false, true} {
		h := newKey(t)
		h.waits(nil)
		h.answer(h.sent(protocol.OpAcquire), foreign, foreign, foreign)
		asked := h.sent(protocol.OpQueue)
		if isDoubted {
			h.Doubt(h.now)
		}
		h.Carried()
		behind := protocol.Reply{Outcome: protocol.Refused, Others: 5}
		for node := range 3 {
			if asked.asked.Has(node) && h.Count(asked, node, &behind) {
				h.Weigh(asked, node, h.now)
			}
		}
		isAsked := false
		for _, e := range h.Effects() {
			isAsked = isAsked || e.Kind == Send && e.Request.Op == protocol.OpQueue
		}
		assert.Equal(t, isDoubted, isAsked)
	}
}

// TestExpiredKeyMakesNoNodeSilent: the home may still answer about the ticket.
func TestExpiredKeyMakesNoNodeSilent(t *testing.T) {
	h := newHeld(t)
	h.waits(func(t *Terms) { t.Fair = true })
	h.now = h.Hold.Deadline() - clock.Instant(5*time.Millisecond)
	h.Carried()
	h.Tick(h.now)
	about := h.asked(toWatch)
	replies := make([]protocol.Reply, 3)
	replies[h.contest.queue.home] = protocol.Reply{Outcome: protocol.Refused, TTL: 2 * time.Millisecond}
	h.answer(about, replies...)
	place := h.asked(toJoinQueue)
	h.now = h.Hold.Deadline()
	h.Tick(h.now)
	assert.Nil(t, h.claim, "it was lost")
	assert.Greater(t, h.Due(), h.now)
	assert.Same(t, place, h.asked(toJoinQueue))
}

// asked returns the last question of a purpose since the effects were carried out.
func (h *held) asked(p purpose) *Ballot {
	for _, e := range slices.Backward(h.Effects()) {
		if e.Kind == Send && e.Ballot.purpose == p {
			return e.Ballot
		}
	}
	require.Fail(h.T, "nothing is asked")
	return nil
}

// at returns the replies of the nodes if only the home answers.
func (h *held) at(b *Ballot, reply protocol.Reply) {
	replies := make([]protocol.Reply, h.Home()+1)
	replies[h.Home()] = reply
	h.answer(b, replies...)
}

// TestOnlyAFreeKeyIsTakenOutOfTurn: a waiter that is not the first has received hints of an old
// release or of a renewal. When a node reports that the key is free, the waiter leaves time for the
// first waiter. It does so again after each hint, because the key was taken. Then a quorum must
// report that the key is free: one node may lack the key that the other nodes hold.
func TestOnlyAFreeKeyIsTakenOutOfTurn(t *testing.T) {
	t.Parallel()
	for _, others := range []int{1, 3} { // with and without a watch on the key
		h := newKey(t)
		h.remember().pace = time.Millisecond
		h.waits(nil)
		h.answer(h.sent(protocol.OpAcquire), foreign, foreign, foreign)
		asked := h.contest.queue.question
		h.at(h.asked(toJoinQueue), protocol.Reply{Outcome: protocol.Refused, Others: others})
		h.at(h.asked(toWatch), foreign)
		h.Hint(h.Home(), h.now)
		looks := func(isHinted bool, replies ...protocol.Reply) (after time.Duration) {
			for began := h.now; h.contest.queue.question == asked; after = h.now.Sub(began) {
				h.pass(time.Millisecond)
			}
			asked = h.contest.queue.question
			h.at(h.asked(toJoinQueue), protocol.Reply{Outcome: protocol.Refused, Others: 1})
			if isHinted {
				h.Hint(h.Home(), h.now)
			}
			h.answer(h.asked(toWatch), replies...)
			return after
		}
		isFree := []protocol.Reply{granted, granted, granted}
		looks(false, isFree...)
		require.Equal(t, queued, h.contest.phase)
		h.Hint(h.Home(), h.now)
		for _, isHinted := range []bool{true, false} { // the hint is newer than the answer
			looks(isHinted, isFree...)
			require.Equal(t, queued, h.contest.phase)
		}
		looks(false, granted, foreign, foreign)
		require.Equal(t, queued, h.contest.phase)
		looks(false, isFree...)
		require.Equal(t, queued, h.contest.phase)
		assert.Greater(t, looks(false, isFree...), minAnswerLimit)
		require.Equal(t, voting, h.contest.phase, "the first has left it lie")
		h.answer(h.contest.attempt, failing, failing, failing)
		require.Equal(t, pausing, h.contest.phase)
		h.pass(longest)
		require.Equal(t, voting, h.contest.phase)
		h.Carried()
		h.answer(h.contest.attempt, isFree...)
		assert.False(t, h.sent(protocol.OpQueue).Req.Ticket.Overtakes, "the first may have come back since")
	}
}

var failing = protocol.Reply{Outcome: protocol.Failed}

// TestFirstWaiterPausesBriefly: a Fair waiter must not seem dead after many wasted attempts.
func TestFirstWaiterPausesBriefly(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	h.remember().pace = time.Millisecond
	h.waits(func(t *Terms) { t.Fair = true })
	for h.contest.queue.watch.wasted < 10 {
		h.at(h.asked(toJoinQueue), granted)
		h.at(h.asked(toWatch), granted)
		h.pass(max(hintGap, h.contest.queue.watch.pause.Sub(h.now)))
		require.Equal(t, voting, h.contest.phase)
		h.answer(h.contest.attempt, protocol.Reply{}, foreign, foreign) // the node that called the key free refuses, too
		assert.LessOrEqual(t, h.contest.queue.watch.pause.Sub(h.now), minAnswerLimit)
	}
}

// TestReaderDoesNotOvertakeAWriter: the reader learns about the readers before it has its ticket.
func TestReaderDoesNotOvertakeAWriter(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	h.remember().pace = time.Millisecond
	h.waits(func(t *Terms) { t.Shared = true })
	h.answer(h.sent(protocol.OpShare), foreign, foreign, foreign)
	place := h.asked(toJoinQueue)
	h.at(h.asked(toWatch), granted)
	h.at(place, protocol.Reply{Outcome: protocol.Refused, Others: 1})
	h.pass(2 * minAnswerLimit)
	assert.Equal(t, queued, h.contest.phase)
	assert.Same(t, place, h.asked(toJoinQueue))
}

// TestFirstWaiterCalledDuringItsQuestionAsksAgain: this applies to a Fair waiter, because an older
// ticket may have returned after the answer.
func TestFirstWaiterCalledDuringItsQuestionAsksAgain(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	h.waits(func(t *Terms) { t.Fair = true })
	asked := h.asked(toJoinQueue)
	h.Call(h.contest.queue.id, h.now)
	h.at(asked, granted)
	require.NotSame(t, asked, h.asked(toJoinQueue))
	h.at(h.asked(toJoinQueue), granted)
	assert.Equal(t, first, h.contest.queue.standing)
}

// TestTryStartsItsAttemptWhenTheReadersEnd: the try would have joined the readers of its process. A
// reader and a Fair writer wait.
func TestTryStartsItsAttemptWhenTheReadersEnd(t *testing.T) {
	t.Parallel()
	h := newKey(t)
	shared := func(t *Terms) { t.Shared = true }
	first := h.waits(shared)
	h.answer(h.sent(protocol.OpShare), granted, granted, granted)
	require.NotNil(t, first.Hold)
	h.now = h.now.Add(time.Second)
	h.waits(func(t *Terms) { t.Shared, t.TTL = true, time.Minute })
	h.waits(func(t *Terms) { t.Fair = true })
	h.tries(shared)
	h.Carried()
	h.Release(first.Hold, &Caller{}, h.now)
	require.Nil(t, h.claim)
	assert.Equal(t, h.now, h.sent(protocol.OpShare).Start)
}
