package core

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Package explore tests the rules together. This file tests the rules that none of its schedules
// breaks within seconds, because the servers seldom lose exactly the state that such a rule
// protects.

// A held is a key with a holder, on three nodes that send hints.
type held struct {
	*testing.T
	*Key
	*Hold
	now clock.Instant
}

func newHeld(t *testing.T) *held {
	h := newKey(t)
	c := h.waits(nil)
	h.answer(h.sent(protocol.OpAcquire), granted, granted, granted)
	require.NotNil(t, c.Hold)
	h.Hold = c.Hold
	h.Carried()
	return h
}

// newKey returns a key without callers.
func newKey(t *testing.T) *held {
	group := &Group{
		Nodes: 3, Lots: []uint64{1, 2, 3}, Hinting: quorum.All(3), Epoch: "epoch", Observed: true,
		Jitter:   func(time.Duration) time.Duration { return 0 },
		NewValue: func(string) string { return "value" },
	}
	return &held{T: t, Key: &Key{Group: group, Name: "x"}, now: clock.Instant(time.Hour)}
}

// waits adds a waiting caller. change may change its terms.
func (h *held) waits(change func(*Terms)) *Caller {
	c := &Caller{Terms: &Terms{TTL: 3 * time.Second, Timeout: time.Second, Renew: true, Patience: 3 * time.Second}}
	if change != nil {
		change(c.Terms)
	}
	h.Arrive(c, h.now)
	return c
}

// tries adds a caller that tries once.
func (h *held) tries(change func(*Terms)) *Caller {
	c := &Caller{Terms: &Terms{TTL: 3 * time.Second, Timeout: time.Second, Renew: true}, Try: true}
	change(c.Terms)
	h.Arrive(c, h.now)
	return c
}

// pass lets time pass, with a Tick whenever one is due.
func (h *held) pass(d time.Duration) {
	for end := h.now.Add(d); h.now < end; {
		if h.now = end; h.Due() > 0 && h.Due() <= end {
			h.now = h.Due()
			h.Tick(h.now)
		}
	}
}

var (
	granted = protocol.Reply{Outcome: protocol.Granted}
	lacking = protocol.Reply{Outcome: protocol.Refused}                   // the key does not exist
	foreign = protocol.Reply{Outcome: protocol.Refused, TTL: time.Second} // it is another's
)

// sent returns the request of the last event.
func (h *held) sent(op protocol.Op) *Ballot {
	for _, e := range h.Effects() {
		if e.Kind == Send && e.Request.Op == op {
			return e.Ballot
		}
	}
	require.Fail(h.T, "nothing is asked", "%v", op)
	return nil
}

// answer gives the replies of the nodes in order. A zero reply is skipped.
func (h *held) answer(b *Ballot, replies ...protocol.Reply) {
	for node := range replies {
		if r := &replies[node]; r.Outcome != 0 && h.Count(b, node, r) {
			h.Weigh(b, node, h.now)
		}
	}
}

// renew lets time pass until the claim is extended.
func (h *held) renew() *Ballot {
	for range 10 {
		h.now = h.Due()
		h.Carried()
		h.Tick(h.now)
		for _, e := range h.Effects() {
			if e.Kind == Send && e.Request.Op == protocol.OpExtend {
				return e.Ballot
			}
		}
	}
	require.Fail(h.T, "it is not renewed")
	return nil
}

// TestExtensionCountsOnlyKnownKeys: the grant of a node that may have forgotten other locks counts
// only if the node is known to have the claim, and only until its key expires.
func TestExtensionCountsOnlyKnownKeys(t *testing.T) {
	h := newHeld(t)
	until := h.Hold.Deadline()
	b := h.renew()
	assert.Equal(t, quorum.All(3), b.HadKey)
	assert.Equal(t, until, b.HadUntil)
	h.answer(b, foreign, granted) // the third node is silent, so nothing is decided
	b = h.renew()
	assert.Equal(t, quorum.All(3)&^quorum.Of(0), b.HadKey, "the node has refused one")
	h.answer(b, granted, granted, granted)
	assert.Equal(t, quorum.All(3), h.renew().HadKey)
}

// TestLossEndsTheClaimAtOnce: the claim does not wait for its deadline.
func TestLossEndsTheClaimAtOnce(t *testing.T) {
	for op, reason := range map[protocol.Op]Reason{protocol.OpExtend: Gone, protocol.OpLook: Missing} {
		h := newHeld(t)
		var b *Ballot
		if op == protocol.OpExtend {
			b = h.renew()
		} else {
			h.now = h.Due()
			assert.LessOrEqual(t, h.now.Sub(h.Since), 100*time.Millisecond, "it is looked at soon")
			h.Tick(h.now)
			b = h.sent(op)
		}
		h.answer(b, lacking)
		assert.Equal(t, Held, h.Reason, "a minority")
		h.answer(b, protocol.Reply{}, foreign)
		assert.Equal(t, reason, h.Reason)
	}
}

// TestGuardJudgesRequestsThatGrant: a request that can win or keep a lock, or a token, looks at the nodes' records.
func TestGuardJudgesRequestsThatGrant(t *testing.T) {
	k := newHeld(t).Key
	for op, isJudged := range map[protocol.Op]bool{
		protocol.OpAcquire: true, protocol.OpAcquireFenced: true, protocol.OpShare: true, protocol.OpRaise: true,
		protocol.OpExtend: true, protocol.OpExtendShared: true,
		protocol.OpRelease: false, protocol.OpReleaseFenced: false, protocol.OpReleaseShared: false,
		protocol.OpLook: false, protocol.OpWatch: false, protocol.OpQueue: false, protocol.OpIntend: false,
	} {
		assert.Equal(t, isJudged, k.ballot(toNothing, op, nil, 1).Req.Epoch != "", "%v", op)
	}
}

// extends makes the holder extend its claim, and returns the ballot and the caller that waits for
// it.
func (h *held) extends(ttl time.Duration) (*Ballot, *Caller) {
	h.now = h.now.Add(time.Millisecond)
	c := &Caller{}
	h.Carried()
	h.Extend(h.Hold, ttl, c, h.now)
	return h.sent(protocol.OpExtend), c
}

// isTold checks that the last event has delivered an outcome to a caller, and returns its failure.
func (h *held) isTold(c *Caller) *Failure {
	h.Helper()
	assert.True(h.T, slices.ContainsFunc(h.Effects(), func(e Effect) bool { return e.Kind == Done && e.Caller == c }))
	return c.Failure
}

// TestExtensionsOfTwoTTLsOverlap: each caller gets the outcome of its own extension.
func TestExtensionsOfTwoTTLsOverlap(t *testing.T) {
	const long = time.Minute
	early := protocol.Reply{Outcome: protocol.Failed, Err: &protocol.QuarantineError{Reason: "it had to record the TTL first"}}
	overlap := func() (h *held, longer *Ballot, l *Caller, plain *Ballot, p *Caller) {
		h = newHeld(t)
		longer, l = h.extends(long)
		plain, p = h.extends(0)
		h.Carried()
		return h, longer, l, plain, p
	}

	h, longer, l, plain, p := overlap()
	h.answer(longer, granted, granted)
	assert.Nil(t, h.isTold(l))
	h.answer(plain, granted, granted)
	assert.Nil(t, h.isTold(p), "its lock lives for longer than it has asked")
	assert.Equal(t, longer.Deadline(), h.Hold.Deadline())
	assert.True(t, h.IsWell())

	h, longer, l, plain, p = overlap()
	h.answer(plain, granted, granted)
	assert.Nil(t, h.isTold(p))
	h.answer(longer, granted)
	assert.Equal(t, plain.Deadline(), h.Hold.Deadline(), "a minority has granted the longer one")
	assert.Len(t, h.Effects(), 2, "extended and told: %v", h.Effects())
	h.answer(longer, protocol.Reply{}, granted)
	assert.Nil(t, h.isTold(l))
	assert.Equal(t, longer.Deadline(), h.Hold.Deadline())

	h, longer, l, plain, _ = overlap()
	h.answer(plain, granted, granted)
	h.answer(longer, early, early, granted)
	require.NotNil(t, h.isTold(l))
	assert.True(t, l.Failure.IsEarly)
	assert.Equal(t, plain.Deadline(), h.Hold.Deadline())
}

// TestEarlyExpiringKeyIsNotKnown: a node whose key expires before the deadline is not known to have
// the key.
func TestEarlyExpiringKeyIsNotKnown(t *testing.T) {
	h := newHeld(t)
	longer, _ := h.extends(time.Minute)
	plain, _ := h.extends(0)
	h.answer(longer, granted, granted)
	h.answer(plain, protocol.Reply{}, protocol.Reply{}, granted)
	assert.Equal(t, quorum.Of(0)|quorum.Of(1), h.renew().HadKey)
}

// TestRepairUsesTheRequestedTTL: a node has lost the claim.
func TestRepairUsesTheRequestedTTL(t *testing.T) {
	h := newHeld(t)
	longer, _ := h.extends(time.Minute)
	h.answer(longer, lacking)
	assert.Equal(t, time.Minute, h.sent(protocol.OpAcquire).Req.TTL)
}

// TestLongerTTLIsNotHandedOver: nodes may have the longer TTL, which the next caller did not
// request.
func TestLongerTTLIsNotHandedOver(t *testing.T) {
	for _, longer := range []time.Duration{0, time.Minute} {
		h := newHeld(t)
		next := h.waits(nil)
		b, _ := h.extends(longer)
		h.answer(b, granted)
		h.Release(h.Hold, &Caller{}, h.now)
		assert.Equal(t, longer == 0, next.Hold != nil)
	}
}
