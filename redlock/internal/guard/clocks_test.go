package guard

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// TestClockThatDiffersGetsNewGeneration: the generation records the difference. Votes count again
// after a quarantine, and another quarantine follows when the clock is set.
func TestClockThatDiffersGetsNewGeneration(t *testing.T) {
	court := newCourt(t, 3, ttl)
	s := court.servers[1]
	for _, by := range []time.Duration{-30 * time.Second, 30 * time.Second, time.Hour, -time.Hour} {
		s.offset += by
		before := s.told(t)
		b := court.client(ttl).asks(by.String(), ttl)
		assert.NotEqual(t, granted, b.replies[1].Outcome)
		now := s.told(t)
		require.NotEqual(t, before.Generation, now.Generation, "by %v", by)
		assert.InDelta(t, before.Off+by, now.Off, float64(record.Apart/4))
		assert.InDelta(t, ttl, b.left(t, 1), float64(time.Second))
		court.sleep(ttl + time.Second)
		c := court.client(ttl)
		c.asks("y"+by.String(), ttl)
		assert.Equal(t, all(3, granted), c.asks("z"+by.String(), ttl).outcomes())
		assert.Equal(t, now.Generation, s.told(t).Generation, "it is left alone")
	}
}

// TestClocksWithoutAQuorumAreNotTrusted: two servers differ while the third is down, so the client cannot
// know which of them is right. Neither votes, and no record is written until the third server
// answers.
func TestClocksWithoutAQuorumAreNotTrusted(t *testing.T) {
	court := newCourt(t, 3, ttl)
	court.servers[0].offset -= 30 * time.Second
	court.servers[2].down = true
	before := []string{court.servers[0].record, court.servers[1].record}
	c := court.client(ttl)
	for range 2 {
		b := c.asks("x", ttl)
		assert.NotContains(t, b.outcomes(), granted)
		court.sleep(time.Minute)
	}
	assert.Equal(t, before, []string{court.servers[0].record, court.servers[1].record})
	court.servers[1].forget()
	c.asks("x", ttl)
	assert.Empty(t, court.servers[1].record, "its generation would seem older than it is")

	court.servers[2].down = false
	c.asks("y", ttl)
	assert.Equal(t, -30*time.Second, court.servers[0].told(t).Off.Round(time.Second))
	assert.Equal(t, time.Hour, court.servers[1].told(t).Off.Round(time.Second))
}

// TestOneTryFindsADifferentClock: the order of the servers' answers does not matter.
func TestOneTryFindsADifferentClock(t *testing.T) {
	for i := range 4 {
		court := makeCourt(t, 4, ttl)
		court.servers[i].offset += 30 * time.Second
		before := court.servers[i].told(t).Generation
		court.client(ttl).asks("x", ttl)
		assert.NotEqual(t, before, court.servers[i].told(t).Generation, "server %d", i)
	}
}

// TestHalfOfTheClocksBehindEndNoQuarantineEarly: two of four servers restart empty with clocks
// that are half a minute behind. A client that writes their records vanishes before it writes the
// records of the others, and NTP sets the clocks.
func TestHalfOfTheClocksBehindEndNoQuarantineEarly(t *testing.T) {
	court := newCourt(t, 4, 0)
	for _, s := range court.servers {
		s.settle(court, 4, ttl)
	}
	holder := court.client(ttl)
	holder.asks("w", ttl)
	holder.cut = quorum.Of(3)
	require.Equal(t, []protocol.Outcome{granted, granted, granted, protocol.Unknown}, holder.asks("x", ttl).outcomes())
	half := court.servers[:2]
	for _, s := range half {
		s.forget()
		s.offset -= 30 * time.Second
	}
	c := court.client(ttl)
	b := c.begin("y", ttl)
	for i, r := range c.votes(b) {
		c.receives(b, i, r)
	}
	for admits, _ := c.guard.Effects(); admits != nil; admits, _ = c.guard.Effects() {
		c.sleep(leg)
		slices.SortFunc(admits, func(a, b Admit) int { return b.Node - a.Node }) // servers 3 and 4 answer first
		for _, a := range admits {
			if a.Node < 2 || a.Request.Admit.New == "" {
				reply := c.servers[a.Node].admit(a.Request, c.now)
				c.guard.Record(a.Node, a.Sent, c.now, &reply)
			}
		}
	}
	for _, s := range half {
		require.Equal(t, -30*time.Second, s.told(t).Off.Round(time.Second))
		s.offset += 30 * time.Second
	}
	for range 5 {
		b := court.client(ttl).asks("x", ttl)
		assert.NotEqual(t, []protocol.Outcome{granted, granted}, b.outcomes()[:2])
		court.sleep(ttl / 10)
	}
	court.sleep(ttl)
	for range 5 {
		b = court.client(ttl).asks("z", ttl)
		court.sleep(2 * ttl)
	}
	assert.Equal(t, all(4, granted), b.outcomes(), "%v", b.err())
}

// TestFirstVotesAfterLongIdlenessWaitForOthers: the clocks may have drifted by more than a second.
// The votes of the same ballot show the clocks, without another request.
func TestFirstVotesAfterLongIdlenessWaitForOthers(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	c.asks("x", ttl)
	c.sleep(5 * time.Minute)
	b := c.asks("y", ttl)
	assert.Equal(t, []Verdict{Parked, Judged, Judged}, b.first)
	assert.Equal(t, all(3, granted), b.outcomes())
	assert.Equal(t, rtt, b.took)

	c.sleep(5 * time.Minute)
	b = c.begin("z", ttl, func(b *ballot) { b.Repairs = true })
	reply := c.votes(b)[0]
	c.receives(b, 0, reply) // the request reached only one node
	c.runs()
	assert.Equal(t, granted, b.replies[0].Outcome, "%v", b.err())
}

// TestVoteWaitsBrieflyForClocks: the wait ends with the ballot, or after four timeouts.
func TestVoteWaitsBrieflyForClocks(t *testing.T) {
	c := newCourt(t, 3, ttl).client(ttl)
	c.asks("x", ttl)
	c.sleep(5 * time.Minute)
	lost, old := c.begin("y", ttl), c.begin("z", ttl)
	for _, b := range []*ballot{lost, old} {
		c.receives(b, 0, c.votes(b)[0])
		require.Equal(t, quorum.Of(0), b.parked())
	}
	c.guard.Close(&lost.Trial)
	c.runs()
	assert.ErrorIs(t, lost.replies[0].Err, errUnsure)
	c.sleep(4 * timeout)
	next := c.begin("a", ttl)
	c.receives(next, 0, c.votes(next)[0])
	c.runs()
	assert.ErrorIs(t, old.replies[0].Err, errUnsure)
}

// TestGenerationIsNotOlderThanThePreviousReply: the only server restarts empty with a clock that is
// behind, and the clock is set. According to that clock the quarantine has ended, but in fact it
// has not.
func TestGenerationIsNotOlderThanThePreviousReply(t *testing.T) {
	court := newCourt(t, 1, ttl)
	c := court.client(ttl)
	c.asks("x", ttl)
	s := court.servers[0]
	s.forget()
	s.offset -= time.Minute
	court.client(ttl).asks("y", ttl)
	s.offset += time.Minute
	b := c.asks("z", ttl)
	assert.Greater(t, b.left(t, 0), ttl-time.Second)
}

// TestVoteWithoutAMatchingRecordShowsAClockAhead: only this vote shows it, so the node gets a
// new generation. If other clients have changed the record in between, the vote shows nothing.
func TestVoteWithoutAMatchingRecordShowsAClockAhead(t *testing.T) {
	for _, isChanged := range []bool{false, true} {
		c := makeCourt(t, 3, ttl).client(ttl)
		c.asks("x", ttl)
		s := c.servers[0]
		before := s.told(t).Generation
		b := c.begin("y", ttl)
		s.offset += time.Hour
		reply := c.votes(b)[0]
		s.offset -= time.Hour
		if isChanged {
			s.record += " changed=byanother"
			s.dies += time.Hour
		}
		c.sleep(leg)
		c.receives(b, 0, reply)
		c.runs()
		assert.NotEqual(t, granted, b.replies[0].Outcome)
		assert.Equal(t, isChanged, before == s.told(t).Generation)
		assert.Equal(t, isChanged, c.asks("z", ttl).replies[0].Outcome == granted)
	}
}

// TestOffsetIsWrittenOnlyIfClocksDiffer: a released version reads the records of servers without
// faults.
func TestOffsetIsWrittenOnlyIfClocksDiffer(t *testing.T) {
	court := newCourt(t, 3, 0)
	court.servers[1].offset = record.Apart / 3
	court.servers[2].offset = 2 * record.Apart
	court.client(ttl).asks("x", ttl)
	assert.NotContains(t, court.servers[0].record, "off=")
	assert.NotContains(t, court.servers[1].record, "off=")
	assert.Contains(t, court.servers[2].record, "off=")
}
