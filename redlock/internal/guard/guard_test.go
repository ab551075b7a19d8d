package guard

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

const (
	granted = protocol.Granted
	unknown = protocol.Unknown
)

// TestVoteWaitsForItsRecordOnce: the first vote is parked until the record has been read, which
// costs one more round trip. Votes that the record covers cost nothing.
func TestVoteWaitsForItsRecordOnce(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	b := c.asks("x", ttl)
	assert.Equal(t, all(3, granted), b.outcomes())
	assert.Equal(t, []Verdict{Parked, Parked, Parked}, b.first)
	assert.Equal(t, 2*rtt, b.took)
	for range 3 {
		b = c.asks("y", ttl, func(b *ballot) { b.req.Key = b.req.Value })
		assert.Equal(t, all(3, granted), b.outcomes())
		assert.Equal(t, []Verdict{Judged, Judged, Judged}, b.first)
		assert.Equal(t, rtt, b.took)
		c.sleep(time.Minute) // clocks may drift in the meantime, but nothing is read again
	}
	c.sleep(10 * time.Minute)
	b = c.asks("z", ttl)
	assert.Equal(t, ErrEarly, b.err(), "the TTL is entered again, before the votes that count")
	assert.Equal(t, 2*rtt, b.took)
	assert.Equal(t, quorum.All(3), b.early())
	assert.Equal(t, all(3, granted), c.asks("a", ttl).outcomes())
}

// TestUnparkedVoteAllocatesNothing: nearly all votes are judged this way.
func TestUnparkedVoteAllocatesNothing(t *testing.T) {
	c := makeCourt(t, 3, ttl).client(ttl)
	c.asks("x", ttl)
	b := c.begin("y", ttl)
	replies := c.votes(b)
	c.receives(b, 0, replies[0])
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r := replies[1]
		require.Equal(t, Judged, c.guard.Judge(&b.Trial, 1, &r, c.now))
		c.guard.Effects()
	}))
}

// TestForgetfulServerHasNoVoteForATTL: after that, the server has a vote again.
func TestForgetfulServerHasNoVoteForATTL(t *testing.T) {
	for name, forget := range map[string]func(s *server){
		"flushed":                             (*server).forget,
		"restarted":                           func(s *server) { s.forget(); s.run = "other/own" },
		"restarted with an old state":         func(s *server) { s.keys = map[string]key0{}; s.run = "other/own" },
		"failed over and back":                func(s *server) { s.run = "run0/another" },
		"eviction of the record":              func(s *server) { s.record = "" },
		"PERSIST":                             func(s *server) { s.dies = 0 },
		"flushed, and does not say who it is": func(s *server) { s.forget(); s.run = "" },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t, 3, ttl).client(ttl)
			c.asks("x", ttl)
			c.sleep(time.Second)
			forget(c.servers[0])
			c.sleep(time.Second)
			b := c.asks("y", ttl)
			assert.Equal(t, []protocol.Outcome{unknown, granted, granted}, b.outcomes())
			require.ErrorIs(t, b.err(), protocol.ErrQuarantine)
			left := b.left(t, 0)
			assert.InDelta(t, ttl, left, float64(ttl/4))
			c.sleep(left - 100*time.Millisecond)
			assert.Equal(t, unknown, c.asks("z", ttl).replies[0].Outcome, "still")
			c.sleep(200 * time.Millisecond)
			b = c.asks("a", ttl)
			assert.Equal(t, all(3, granted), b.outcomes(), "%v", b.err())
		})
	}
}

// TestRecordOfAnotherProcessIsVoid: it is void even for a client that has not seen the server
// before.
func TestRecordOfAnotherProcessIsVoid(t *testing.T) {
	court := newCourt(t, 3, ttl)
	court.servers[0].run = "other/own"
	assert.InDelta(t, ttl, court.client(ttl).asks("x", ttl).left(t, 0), float64(ttl/4))
}

// TestClientWaitsForItsOwnTTL: this happens if nodes do not report which locks they remember. The
// client waits for at least a second, whatever the age of the record.
func TestClientWaitsForItsOwnTTL(t *testing.T) {
	for longest, wait := range map[time.Duration]time.Duration{ttl: ttl, 50 * time.Millisecond: time.Second} {
		court := makeCourt(t, 3, 0)
		for i := range 2 {
			c := court.client(longest)
			c.cut = quorum.Of(2)
			assert.InDelta(t, wait+quorum.Drift(wait), c.asks(fmt.Sprint(i), ttl).left(t, 0), float64(20*time.Millisecond))
			c.sleep(2 * longest)
		}
	}
}

// TestTTLIsRecordedBeforeVotesCount: votes that were given before the entry do not count, and the
// next ones do.
func TestTTLIsRecordedBeforeVotesCount(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	b := c.asks("x", 6*ttl)
	assert.Equal(t, all(3, unknown), b.outcomes())
	assert.Equal(t, ErrEarly, b.err())
	assert.Equal(t, all(3, granted), c.asks("y", 6*ttl).outcomes())
}

// TestRepairCountsAfterTheEntry: the TTL is entered at once, because a repair wins nothing by
// itself.
func TestRepairCountsAfterTheEntry(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	c.asks("w", ttl)
	b := c.begin("x", 6*ttl, func(b *ballot) { b.Repairs = true })
	c.receives(b, 0, c.votes(b)[0])
	c.runs()
	assert.Equal(t, granted, b.replies[0].Outcome, "%v", b.err())
	assert.Len(t, c.servers[0].told(t).Steps, 2)
	assert.Len(t, c.servers[1].told(t).Steps, 1)
}

// TestExtensionIsOnTheRecordOfTheServer: a node has kept its keys, but has a new record, written by
// another client. The vote counts after that record has the TTL, too.
func TestExtensionIsOnTheRecordOfTheServer(t *testing.T) {
	court := newCourt(t, 3, 6*ttl)
	a, b := court.client(ttl), court.client(ttl)
	value := a.asks("x", 6*ttl).req.Value
	b.asks("y", ttl)
	court.servers[0].run = "another/own"
	b.asks("z", ttl)
	court.sleep(time.Second)
	x := a.asks("x", 6*ttl, extends(value, quorum.All(3)))
	require.Equal(t, []Verdict{Parked, Judged, Judged}, x.first)
	assert.Equal(t, all(3, granted), x.outcomes(), "the quorum is there without it")
	assert.Equal(t, 6*ttl, court.servers[0].told(t).Steps[0].TTL)
	x = a.asks("x", 6*ttl, extends(value, quorum.All(3)))
	assert.Equal(t, []Verdict{Judged, Judged, Judged}, x.first)
}

// TestRefusedLockRecordsNothing: its TTL would cost other clients a quarantine.
func TestRefusedLockRecordsNothing(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	records := func() (all []string) {
		for _, s := range c.servers {
			all = append(all, s.record)
		}
		return all
	}
	for _, s := range c.servers[:2] {
		s.keys["x"] = key0{"another's", s.clock(c.now) + time.Hour}
	}
	before := records()
	b := c.asks("x", 6*ttl)
	assert.Equal(t, quorum.Of(2), b.parked())
	assert.Len(t, b.waiting, 1, "it waits for a quorum of promises")
	c.guard.Close(&b.Trial)
	c.runs()
	assert.Equal(t, ErrEarly, b.replies[2].Err)
	assert.Zero(t, b.parked())

	b = c.begin("y", 6*ttl)
	replies := c.votes(b)
	c.guard.Close(&b.Trial)
	for i := range replies {
		c.receives(b, i, replies[i])
	}
	c.runs()
	assert.Equal(t, ErrEarly, b.err(), "votes that come after the end")
	assert.Equal(t, before, records())
}

// TestExtensionCountsOnNodesKnownToHaveTheKey: this holds even in a quarantine, because the node
// need not remember more than the key. On a node that was not known to have the key, a later
// request may have set it.
func TestExtensionCountsOnNodesKnownToHaveTheKey(t *testing.T) {
	for _, had := range []bool{true, false} {
		t.Run(fmt.Sprint(had), func(t *testing.T) {
			c := newCourt(t, 3, ttl).client(ttl)
			value := c.asks("x", ttl).req.Value
			c.sleep(time.Second)
			s := c.servers[0]
			s.forget()
			s.keys["x"] = key0{value, s.clock(c.now) + ttl}
			known := quorum.All(3)
			if !had {
				known.Remove(0)
			}
			c.asks("x", ttl, extends(value, known)) // its TTL must be entered again
			b := c.asks("x", ttl, extends(value, known))
			assert.Equal(t, had, b.replies[0].Outcome == granted, "%v", b.err())
			assert.Equal(t, granted, b.replies[1].Outcome)
		})
	}
}

// TestExtensionDoesNotCountOnAnEarlyExpiredKey: the key expired early because the clock of the
// server was set ahead.
func TestExtensionDoesNotCountOnAnEarlyExpiredKey(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	value := c.asks("x", ttl).req.Value
	c.servers[1].offset += 2 * ttl
	b := c.asks("x", ttl, func(b *ballot) { b.req.Value = value }, func(b *ballot) { b.req.Op = protocol.OpAcquire })
	require.Equal(t, unknown, b.replies[1].Outcome)
	b = c.asks("x", ttl, extends(value, quorum.All(3)))
	assert.Equal(t, []protocol.Outcome{granted, unknown, granted}, b.outcomes())
}

// TestVoteWithAnUnreadableRecordIsUnknown: the vote is parked no longer than the question lasts.
func TestVoteWithAnUnreadableRecordIsUnknown(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	b := c.begin("z", ttl)
	c.receives(b, 0, c.votes(b)[0])
	admits, _ := c.guard.Effects()
	require.Len(t, admits, 1)
	c.guard.Record(0, admits[0].Sent, c.now, &protocol.Reply{Outcome: protocol.Failed, Err: errors.New("refused")})
	c.runs()
	assert.ErrorContains(t, b.replies[0].Err, "could not be checked (key \"redlock:epoch\"): refused")
}

// TestMissingRecordParksNoVoteForever: a later vote gives up the overdue question.
func TestMissingRecordParksNoVoteForever(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	c.servers[0].silent = true
	b := c.asks("x", ttl)
	assert.Equal(t, quorum.Of(0), b.parked())
	c.sleep(4*timeout + time.Millisecond)
	next := c.asks("y", ttl)
	assert.ErrorContains(t, b.replies[0].Err, "no answer")
	assert.Zero(t, b.parked())
	assert.Equal(t, quorum.Of(0), next.parked())
	c.sleep(time.Second)
	c.servers[0].silent = false
	last := c.asks("z", ttl)
	assert.Equal(t, granted, last.replies[0].Outcome)
	assert.ErrorContains(t, next.replies[0].Err, "no answer")
}

// TestVoteAtTheStartOfAGenerationDoesNotCount: the node's clock is not known precisely enough.
func TestVoteAtTheStartOfAGenerationDoesNotCount(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	s := c.servers[0]
	born := s.clock(c.now)
	r := record.Record{Run: s.run, Generation: "new", Nodes: 3, Born: born, Off: s.offset, Basis: record.Proof,
		Steps: []record.Step{{TTL: ttl, Entered: born - time.Hour, Used: born}}}
	s.record = r.String()
	c.sleep(3 * time.Millisecond)
	assert.ErrorContains(t, c.asks("x", ttl).replies[0].Err, "may have forgotten locks")
	c.sleep(3 * time.Millisecond)
	assert.Equal(t, all(3, granted), c.asks("y", ttl).outcomes())
}

// TestVoteDuringAQuarantineNeverCounts: the vote does not count even if it arrives after the
// quarantine, when other votes of the same moment count.
func TestVoteDuringAQuarantineNeverCounts(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	value := c.asks("x", ttl).req.Value
	s := c.servers[0]
	s.forget()
	s.keys["x"] = key0{value, s.clock(c.now) + ttl}
	c.asks("x", ttl, extends(value, quorum.All(3))) // its TTL is entered
	left := c.asks("y", ttl).left(t, 0)
	c.sleep(left - 50*time.Millisecond)
	old := c.begin("old", ttl)
	c.sleep(100 * time.Millisecond)
	b := c.begin("b", ttl)
	c.sleep(leg)
	reply := s.vote(&b.req, c.now)
	c.receives(b, 0, reply)
	c.runs()
	require.Equal(t, granted, b.replies[0].Outcome, "%v", b.err())
	c.receives(b, 0, reply)
	require.Equal(t, Judged, b.first[0])
	c.receives(old, 0, reply)
	c.runs()
	assert.ErrorContains(t, old.replies[0].Err, "may have forgotten locks")
}

// TestEarlyVoteIsAPromise: it counts for the quorum of promises that other votes wait
// for.
func TestEarlyVoteIsAPromise(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	c.asks("w", ttl)
	b := c.begin("x", 6*ttl)
	replies := c.votes(b)
	c.cut = quorum.Of(2)
	require.Equal(t, quorum.Of(0)|quorum.Of(1), c.asks("y", 6*ttl).early())
	c.cut = 0
	c.receives(b, 2, replies[2])
	c.runs()
	require.Equal(t, quorum.Of(2), b.parked())
	c.receives(b, 0, replies[0])
	c.runs()
	assert.Equal(t, quorum.Of(0)|quorum.Of(2), b.early())
	assert.Zero(t, b.parked())
}

// TestClockSetAheadCountsAsForgetting: keys on the node expire too early, however short the jump.
// The quarantine lasts for the longest TTL on record.
func TestClockSetAheadCountsAsForgetting(t *testing.T) {
	for _, jump := range []time.Duration{time.Second, ttl, time.Hour, 1000 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			c := newCourt(t, 5, 6*ttl).client(ttl)
			c.asks("x", ttl)
			c.servers[1].offset += jump
			b := c.asks("y", ttl)
			assert.ErrorContains(t, b.replies[1].Err, "its clock was set ahead by up to "+jump.String()[:1])
			assert.InDelta(t, 6*ttl, b.left(t, 1), float64(ttl/5))
			c.sleep(b.left(t, 1) - time.Second)
			assert.Equal(t, unknown, c.asks("z", ttl).replies[1].Outcome)
			c.sleep(2 * time.Second)
			c.asks("a", ttl)
			assert.Equal(t, granted, c.asks("b", ttl).replies[1].Outcome)
		})
	}
}

// TestClockJumpsAddUp: after two jumps, keys that have not expired may seem to have expired long
// ago.
func TestClockJumpsAddUp(t *testing.T) {
	c := newCourt(t, 1, 6*ttl).client(time.Second)
	c.asks("x", ttl)
	c.servers[0].offset += time.Hour
	c.asks("y", ttl)
	c.sleep(5 * ttl)
	c.servers[0].offset += time.Second
	assert.InDelta(t, 6*ttl, c.asks("z", ttl).left(t, 0), float64(time.Second))
}

// TestClockSetAheadAgesNoGeneration: the clock that shows the age of the generation was set ahead.
func TestClockSetAheadAgesNoGeneration(t *testing.T) {
	court := newCourt(t, 3, 6*ttl)
	c := court.client(time.Second)
	c.asks("x", ttl)
	for _, s := range court.servers {
		s.forget()
	}
	court.client(time.Second).asks("y", ttl)
	court.servers[0].offset += time.Hour
	c.asks("z", ttl)
	c.sleep(2 * time.Second)
	b := c.asks("a", ttl)
	assert.ErrorContains(t, b.replies[0].Err, "may have forgotten locks")
	assert.InDelta(t, 6*ttl, b.left(t, 0), float64(3*time.Second))
}

// TestClockSetBackCostsOneReading: it costs no vote if the clock was set back by less than a
// second.
func TestClockSetBackCostsOneReading(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	c.asks("x", ttl)
	c.servers[0].offset -= record.Apart / 2
	b := c.asks("y", ttl)
	assert.Equal(t, []Verdict{Parked, Judged, Judged}, b.first)
	assert.Equal(t, all(3, granted), b.outcomes(), "%v", b.err())
}

// TestQuarantineMustPassOnOurClockToo: by a server's clock that was set ahead, the quarantine ends
// too early.
func TestQuarantineMustPassOnOurClockToo(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	c.asks("x", ttl)
	c.servers[0].forget()
	c.asks("y", ttl)
	c.sleep(time.Second)
	c.servers[0].offset += time.Hour
	c.sleep(ttl - 2*time.Second)
	assert.Equal(t, unknown, c.asks("z", ttl).replies[0].Outcome)
}

// TestDifferentNumberOfNodesIsRefused: the client does not change the records of other clients, not
// even a record of an earlier server process.
func TestDifferentNumberOfNodesIsRefused(t *testing.T) {
	c := newCourt(t, 3, ttl)
	for i, s := range c.servers {
		s.settle(c, 5, ttl)
		if i == 1 {
			s.run = "other/own"
		}
	}
	before := c.servers[1].record
	b := c.client(ttl).asks("x", ttl)
	assert.Equal(t, all(3, unknown), b.outcomes())
	for i := range c.servers {
		require.ErrorIs(t, b.replies[i].Err, ErrSettings)
		assert.ErrorContains(t, b.replies[i].Err, "lock by 5 nodes, this client by 3")
	}
	assert.Equal(t, before, c.servers[1].record)
}

// TestQuarantineLastsForTheLongestLock: this includes a lock of any client that only other nodes
// remember, or only their refusals show.
func TestQuarantineLastsForTheLongestLock(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			court := newCourt(t, 5, ttl)
			a, b := court.client(ttl), court.client(ttl)
			b.asks("w", ttl)
			a.asks("x", 6*ttl)
			court.sleep(time.Second)
			for _, s := range court.servers {
				s.keys = map[string]key0{}
			}
			require.Equal(t, all(5, granted), a.asks("x", 6*ttl).outcomes())
			if refused { // all nodes forget the TTLs that b has learned from the refusals
				assert.Equal(t, all(5, protocol.Refused), b.asks("x", ttl).outcomes())
				for _, s := range court.servers {
					s.forget()
				}
				assert.InDelta(t, 6*ttl, b.asks("y", ttl).left(t, 0), float64(ttl/4))
				return
			}
			court.servers[0].forget()
			assert.InDelta(t, 6*ttl, b.asks("y", ttl).left(t, 0), float64(ttl/4))
		})
	}
}

// TestClientRemembersForgottenRecords: all nodes forget, and a client without earlier knowledge asks
// first.
func TestClientRemembersForgottenRecords(t *testing.T) {
	court := newCourt(t, 5, 10*ttl)
	a, fresh := court.client(ttl), court.client(ttl)
	a.asks("x", ttl)
	for _, s := range court.servers {
		s.forget()
	}
	assert.InDelta(t, ttl, fresh.asks("y", ttl).left(t, 0), float64(ttl/4))
	court.sleep(2 * ttl)
	fresh.asks("z", ttl)
	require.Equal(t, all(5, granted), fresh.asks("a", ttl).outcomes())
	a.asks("b", ttl)
	assert.InDelta(t, 8*ttl, a.asks("c", ttl).left(t, 0), float64(ttl))
	fresh.asks("d", ttl)
	assert.Positive(t, fresh.asks("e", ttl).left(t, 0), "it has learnt it from the records")
}

// TestLossIsRecordedAfterAClockWasSetBack: the clock was set back while the question was in
// progress. The client cannot notice that: by its own calculation, the lost locks have expired.
func TestLossIsRecordedAfterAClockWasSetBack(t *testing.T) {
	c := newCourt(t, 3, ttl).client(time.Second)
	c.asks("x", ttl)
	b := c.begin("y", ttl)
	for _, s := range c.servers {
		s.forget()
	}
	c.receives(b, 0, c.votes(b)[0])
	admits, _ := c.guard.Effects()
	require.Len(t, admits, 1)

	s := c.servers[0]
	s.offset -= 12 * time.Second
	c.sleep(12 * time.Second)
	born := s.clock(c.now)
	r := record.Record{Run: s.run, Generation: "new", Nodes: 3, Born: born, Off: s.offset, Basis: record.Asked}
	s.record, s.dies = r.String(), born+1<<42*time.Millisecond
	c.sleep(time.Second)
	reply := s.admit(admits[0].Request, c.now)
	c.guard.Record(0, admits[0].Sent, c.now, &reply)
	c.runs()
	assert.Equal(t, ttl, s.told(t).Forgot)
}

// TestNodeInQuarantineProvesNothing: otherwise nodes that forget in turn would prove to each other
// that there were no locks.
func TestNodeInQuarantineProvesNothing(t *testing.T) {
	c := newCourt(t, 3, time.Millisecond).client(ttl)
	c.sleep(time.Hour)
	c.asks("x", time.Second)
	c.cut = quorum.Of(2)
	c.servers[0].forget()
	require.Greater(t, c.asks("y", time.Second).left(t, 0), ttl/2)
	c.cut = 0
	c.sleep(time.Second)
	c.servers[2].forget()
	c.sleep(time.Second)
	c.asks("z", time.Second) // reads the other nodes again
	assert.Greater(t, c.asks("a", time.Second).left(t, 2), ttl/2)
}

// TestLaterLockCostsNoQuarantine: a lock that expired long ago does not cost one, either.
func TestLaterLockCostsNoQuarantine(t *testing.T) {
	court := newCourt(t, 3, 6*ttl)
	a := court.client(ttl)
	a.asks("x", ttl)
	court.sleep(time.Hour)
	for _, s := range court.servers {
		s.forget()
	}
	assert.InDelta(t, ttl, a.asks("y", ttl).left(t, 0), float64(ttl/4), "locks of 6 TTLs have expired")

	court = makeCourt(t, 3, ttl)
	a, b := court.client(ttl), court.client(ttl)
	court.servers[0].forget()
	a.cut = quorum.Of(2)
	a.asks("x", ttl)
	court.sleep(time.Second)
	b.cut = quorum.Of(0)
	b.asks("y", 6*ttl)
	c := court.client(ttl)
	c.asks("z", ttl) // reads the records
	assert.Less(t, c.asks("a", ttl).left(t, 0), ttl+time.Second, "the longer lock was granted after the node forgot")
}

// TestNodeForgetsNoLockOfItsOwnRecord: this client does not know whether the lock or the record
// came first.
func TestNodeForgetsNoLockOfItsOwnRecord(t *testing.T) {
	c := newCourt(t, 3, 0).client(time.Second)
	c.servers[1].settle(c.court, 3, time.Second)
	c.cut = quorum.Of(2)
	s := c.servers[0]
	born := s.clock(c.now)
	r := record.Record{Run: s.run, Generation: "new", Nodes: 3, Born: born, Off: s.offset, Basis: record.Open,
		Steps: []record.Step{{TTL: 2 * time.Hour, Entered: born + time.Second, Used: born + time.Second}}}
	s.record, s.dies = r.String(), born+1<<42*time.Millisecond
	c.sleep(time.Hour)
	c.asks("x", ttl) // finds that node 3 is down
	c.sleep(time.Second)
	c.asks("x", ttl)
	y := c.asks("y", ttl, func(b *ballot) { b.Repairs = true })
	assert.Equal(t, granted, y.replies[0].Outcome, "%v", y.replies[0].Err)
}

// TestRecordListsForgottenLocks: a record lists the locks that its node may have forgotten, and so limits
// the locks that another node can have forgotten since.
func TestRecordListsForgottenLocks(t *testing.T) {
	c := newCourt(t, 3, 0).client(time.Second)
	for _, s := range c.servers[1:] {
		born := s.clock(c.now)
		r := record.Record{Run: s.run, Generation: "new", Nodes: 3, Born: born, Off: s.offset, Forgot: 6 * ttl, Basis: record.Asked}
		s.record, s.dies = r.String(), born+1<<42*time.Millisecond
	}
	c.sleep(time.Second)
	c.asks("x", time.Second)
	assert.InDelta(t, 6*ttl, c.asks("y", time.Second).left(t, 0), float64(ttl/4))
}

// TestOldFailureIsNotATry: the node may be reachable again, so the client asks it once more.
func TestOldFailureIsNotATry(t *testing.T) {
	court := newCourt(t, 3, 0)
	a, b := court.client(ttl), court.client(ttl)
	a.cut = quorum.Of(2)
	a.asks("x", ttl)
	court.sleep(record.AloneLimit * ttl)
	b.cut = quorum.Of(2)
	b.asks("y", ttl)
	require.Positive(t, court.servers[0].told(t).Failed)
	court.sleep(ttl)
	for _, isRecent := range []bool{true, false} {
		c := &client{court: court, guard: b.guard.Clone(nil)}
		z := c.begin("z", ttl)
		c.receives(z, 0, c.votes(z)[0])
		admits, _ := c.guard.Effects()
		require.Len(t, admits, 1, "the other is asked with each vote")
		if isRecent {
			for _, a := range admits {
				c.guard.Record(a.Node, a.Sent, c.now, &protocol.Reply{Outcome: protocol.Unknown})
			}
		}
		c.guard.ask(0, nil, c.now)
		admits, _ = c.guard.Effects()
		reply := court.servers[0].admit(admits[len(admits)-1].Request, c.now)
		c.guard.Record(0, c.guard.nodes[0].asked.sent, c.now, &reply)
		admits, _ = c.guard.Effects()
		ends := len(admits) > 0 && strings.Contains(admits[len(admits)-1].Request.Admit.New, "basis=1")
		assert.Equal(t, isRecent, ends)
	}
}

// TestNewClientDropsNoStep: a step may only seem to have faded, because the clock was set ahead.
// The clients that have noticed the jump need the step.
func TestNewClientDropsNoStep(t *testing.T) {
	c := newCourt(t, 3, 6*ttl).client(ttl)
	for _, s := range c.servers {
		s.offset += time.Hour
	}
	c.asks("x", 2*ttl)
	steps := c.servers[0].told(t).Steps
	require.Len(t, steps, 2)
	c.sleep(6*ttl + time.Minute)
	for range 2 {
		c.sleep(11 * time.Minute)
		c.asks("y", 3*ttl)
	}
	for _, s := range c.servers[0].told(t).Steps {
		assert.NotEqual(t, 6*ttl, s.TTL, "it drops what has faded")
	}
}

// TestClockSetAheadDropsNoStep: the record is about to be changed.
func TestClockSetAheadDropsNoStep(t *testing.T) {
	c := newCourt(t, 1, 6*ttl).client(ttl)
	c.asks("x", ttl)
	c.sleep(9 * time.Minute)
	b := c.begin("y", 12*ttl)
	for i, reply := range c.votes(b) {
		c.receives(b, i, reply)
	}
	admits, _ := c.guard.Effects()
	require.Len(t, admits, 1)
	s := c.servers[0]
	s.record += " changed=byanother"
	s.offset += time.Hour
	reply := s.admit(admits[0].Request, c.now)
	c.guard.Record(0, admits[0].Sent, c.now, &reply)
	c.runs()
	steps := s.told(t).Steps
	require.Len(t, steps, 2)
	assert.Equal(t, 6*ttl, steps[0].TTL)
}

// TestShortLivedClientGetsVotesWhileANodeIsDown: earlier clients have tried that node for long
// enough, although none of them lived as long as its own wait.
func TestShortLivedClientGetsVotesWhileANodeIsDown(t *testing.T) {
	court := newCourt(t, 3, 0)
	court.servers[2].down = true
	start := court.now
	up := []protocol.Outcome{granted, granted, unknown}
	for range 20 {
		court.sleep(ttl)
		c := court.client(ttl)
		c.asks("x", ttl) // enters the TTL
		b := c.asks("y", ttl, func(b *ballot) { b.req.Key = b.req.Value })
		if assert.ObjectsAreEqual(up, b.outcomes()) {
			assert.Equal(t, record.Tried, court.servers[0].told(t).Basis)
			assert.GreaterOrEqual(t, court.now.Sub(start), record.AloneLimit*ttl)
			return
		}
	}
	t.Fatal("no client has ever got a vote")
}

// TestOldQuestionsProveNothing: the record omits TTLs that the other nodes reported at the time of a
// question. So its TTLs are not an upper bound, no matter how many nodes remember them.
func TestOldQuestionsProveNothing(t *testing.T) {
	c := newCourt(t, 5, 0).client(time.Minute)
	g, now := c.guard, c.now
	for i := range g.nodes {
		m := &g.nodes[i]
		m.record, m.readAt = &record.Record{Generation: "of before"}, now
		m.forgot.Basis, m.birth.gen, m.time.rightUntil = record.Proof, "of before", now.Add(time.Second)
		m.known = []knownTTL{{ttl: time.Minute, gen: "of before", until: now.Add(time.Minute)}}
	}
	g.nodes[0].record = &record.Record{Generation: "new"}
	g.nodes[0].birth = birth{gen: "new", earliest: now.Add(-time.Second), latest: now}
	loss := g.weigh(0, now)
	assert.Zero(t, g.unread(&g.nodes[0]))
	assert.Equal(t, record.Loss{Longest: time.Minute, Basis: record.Proof}, loss)

	g.nodes[0].record.Basis = record.Asked
	loss = g.weigh(0, now)
	assert.Equal(t, record.Asked, loss.Basis, "no proof, though all others remember")
}

// TestManyTTLsKeepTheRecordShort: a record that grows with each TTL would in the end be larger than
// the limit of a client.
func TestManyTTLsKeepTheRecordShort(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	for i := range 500 {
		for c.asks("x", ttl+time.Duration(i)*time.Millisecond, func(b *ballot) { b.req.Key = b.req.Value }).err() != nil {
		}
	}
	assert.Less(t, len(c.servers[0].record), 2000)
}

// TestTokenBeforeALossIsRaised: a token that a node may have accepted before it forgot does not
// count. The node has no vote if the necessary raise is too far from its clock.
func TestTokenBeforeALossIsRaised(t *testing.T) {
	c := newCourt(t, 3, ttl).client(time.Second)
	c.servers[0].settle(c.court, 3, time.Second)
	token := func(of time.Duration) func(*ballot) {
		return func(b *ballot) {
			b.req.Op, b.req.Token, b.req.Slack = protocol.OpAcquireFenced, of.Microseconds(), TokenSlack
		}
	}
	s := c.servers[0]
	born := s.clock(c.now)
	r := record.Record{Run: s.run, Generation: "new", Nodes: 3, Born: born, Off: s.offset, Basis: record.Asked,
		Steps: []record.Step{{TTL: time.Second, Entered: born, Used: born}}}
	s.record, s.dies = r.String(), born+1<<42*time.Millisecond
	c.sleep(1100 * time.Millisecond)
	b := c.asks("above", time.Second, token(born+5*TokenSlack+time.Second))
	assert.Equal(t, granted, b.replies[0].Outcome)
	assert.Zero(t, b.replies[0].Floor)
	b = c.asks("x", time.Second, token(s.clock(c.now)))
	assert.ErrorContains(t, b.replies[0].Err, "may have forgotten higher fencing tokens")
	assert.InDelta(t, 900*time.Millisecond, b.left(t, 0), float64(10*time.Millisecond))
	c.sleep(time.Second)
	b = c.asks("y", time.Second, token(s.clock(c.now)))
	assert.Equal(t, granted, b.replies[0].Outcome)
	assert.Equal(t, (born + 5*TokenSlack).Microseconds(), b.replies[0].Floor)
	assert.Zero(t, b.replies[1].Floor)
	b = c.asks("early", 5*time.Second, token(s.clock(c.now)))
	assert.Equal(t, Parked, b.first[0])
	assert.Equal(t, (born + 5*TokenSlack).Microseconds(), b.replies[0].Floor, "though the vote counts only as one too many")
	b = c.begin("low", time.Second, token(s.clock(c.now)))
	reply := c.votes(b)[0]
	reply.Floor = s.clock(c.now).Microseconds() // the node has refused the token
	c.receives(b, 0, reply)
	assert.Equal(t, (born + 5*TokenSlack).Microseconds(), b.replies[0].Floor)
	c.sleep(10 * time.Second)
	assert.Zero(t, c.asks("z", time.Second, token(s.clock(c.now))).replies[0].Floor)
}

// TestQuarantineWaitsForALateNode: only node 2 remembers a longer lock. The client cannot reach
// node 2 at first, and asks it again at the end of its own wait. The answer of node 2 decides.
func TestQuarantineWaitsForALateNode(t *testing.T) {
	court := newCourt(t, 3, time.Second)
	court.servers[1].settle(court, 3, 9*time.Second)
	court.servers[0].forget()
	c := court.client(time.Second)
	c.cut = quorum.Of(1)
	c.asks("x", time.Second)
	c.cut, court.servers[1].silent = 0, true
	c.sleep(1100 * time.Millisecond)
	b := c.asks("y", time.Second, func(b *ballot) { b.req.Key = b.req.Value })
	assert.NotEqual(t, granted, b.replies[0].Outcome)
	assert.Equal(t, record.Open, court.servers[0].told(t).Basis, "no other client may rest on it")
	court.servers[1].silent = false
	c.sleep(5 * timeout)
	c.asks("z", time.Second)
	b = c.asks("z", time.Second, func(b *ballot) { b.req.Key = b.req.Value })
	assert.InDelta(t, 8*time.Second, b.left(t, 0), float64(time.Second))
	assert.Equal(t, 9*time.Second, court.servers[0].told(t).Forgot)
}

// TestShortMaxTTLProvesNothing: node 1 has forgotten its locks, and for a client with a short
// MaxTTL, its quarantine has ended. For clients with a longer MaxTTL, this does not limit the locks
// that node 3 forgets then.
func TestShortMaxTTLProvesNothing(t *testing.T) {
	court := newCourt(t, 3, time.Second)
	brief, other := court.client(time.Second), court.client(ttl)
	court.servers[0].forget()
	court.servers[1].forget()
	brief.asks("w", time.Second)
	court.sleep(2 * time.Second)
	brief.asks("x", time.Second)
	brief.asks("x", time.Second)
	court.servers[2].forget()
	brief.asks("y", time.Second)
	assert.Equal(t, record.Asked, court.servers[2].told(t).Basis)
	assert.Greater(t, other.asks("z", time.Second).left(t, 2), ttl-time.Second)
}

// TestEarlierRecordCountsAsForgetting: a server is restored from a snapshot, or loads an old
// dump, so its record is an earlier one. A client that has read a later record knows that the
// server has forgotten locks, and the other clients learn it from the new record.
func TestEarlierRecordCountsAsForgetting(t *testing.T) {
	for name, later := range map[string]func(*client){
		"another TTL was entered": func(c *client) { c.asks("y", 3*ttl) },
		"it was entered again":    func(c *client) { c.sleep(10*time.Minute + time.Second); c.asks("y", ttl) },
		"there was another generation": func(c *client) {
			c.servers[1].forget()
			c.asks("y", ttl)
			c.sleep(2 * ttl)
			c.asks("z", ttl)
		},
	} {
		for _, isConnected := range []bool{false, true} {
			if isConnected && name == "it was entered again" {
				continue // the lifetime is the same, so no client reads the record
			}
			t.Run(fmt.Sprint(name, ", on the same connection: ", isConnected), func(t *testing.T) {
				c := newCourt(t, 3, ttl).client(ttl)
				c.asks("x", ttl)
				snapshot := *c.servers[1]
				snapshot.keys = maps.Clone(snapshot.keys)
				later(c)
				require.Equal(t, granted, c.asks("before", ttl).replies[1].Outcome)

				*c.servers[1] = snapshot
				if !isConnected {
					c.servers[1].links++
				}
				assert.Equal(t, unknown, c.asks("after", ttl).replies[1].Outcome)
				b := c.court.client(ttl).asks("after2", ttl)
				assert.Equal(t, unknown, b.replies[1].Outcome, "to another client")
				assert.InDelta(t, ttl, b.left(t, 1), float64(2*ttl+time.Second))
				c.sleep(4 * ttl)
				c.asks("late", ttl)
				assert.Equal(t, granted, c.asks("late2", ttl).replies[1].Outcome)
			})
		}
	}
}

// TestServerRemembersForOneNode: server 3 has forgotten a long lock that server 1 remembers. A
// client reads server 2 through two nodes that exchange their servers, and reads server 1 only
// after its own TTL has passed.
func TestServerRemembersForOneNode(t *testing.T) {
	court := makeCourt(t, 3, ttl)
	for _, s := range court.servers {
		s.offset = 0
		s.settle(court, 3, ttl)
	}
	holder := court.client(6 * ttl)
	holder.cut = quorum.Of(1)
	holder.asks("w", 6*ttl)
	court.sleep(time.Second)
	require.Equal(t, []protocol.Outcome{granted, protocol.Unknown, granted}, holder.asks("x", 6*ttl).outcomes())
	held := court.now
	court.servers[2].forget()

	c, swap := court.client(ttl), func() { court.servers[0], court.servers[1] = court.servers[1], court.servers[0] }
	c.cut = quorum.Of(0)
	c.asks("y", ttl)
	swap()
	c.cut = quorum.Of(1)
	c.asks("y", ttl)
	c.cut = 0
	for court.now.Sub(held) < 5*ttl {
		b := c.asks("x", ttl)
		require.NotEqual(t, granted, b.replies[2].Outcome, "after %v", court.now.Sub(held))
		court.sleep(ttl / 5)
	}
	court.sleep(2 * ttl)
	c.asks("z", ttl)
	assert.Equal(t, all(3, granted), c.asks("x", ttl).outcomes())
}

// TestNodesOfOneServerEndAQuarantine: two nodes that lead to one server end the quarantine of the
// third node.
func TestNodesOfOneServerEndAQuarantine(t *testing.T) {
	court := newCourt(t, 3, ttl)
	court.servers[1] = court.servers[0]
	c := court.client(ttl)
	c.asks("x", ttl)
	court.servers[2].forget()
	for range 11 {
		c.asks("y", ttl)
		court.sleep(ttl / 5)
	}
	assert.Equal(t, all(3, granted), c.asks("z", ttl).outcomes())
}
