package redlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A lock can be released and extended by its name and value from another process than the one that
// took it: a job that is handed on through a queue, or what a holder left that died. Only the value
// counts, so this does no harm to a lock that is another's by now.

// ReleaseValue releases the lock name wherever it holds value, which is the Lock.Value of its
// holder or what Inspect returned: as Lock.Release does, from any process. If the holder lives, its
// Lock.Context ends as for a DEL: within milliseconds, or at its next renewal where servers give
// no hints. Until then two may work, so have the holder stop first.
//
// The locks of readers (Shared) are kept in another way and cannot be adopted: the answer is ErrLost.
//
// Errors: ErrLost if a majority of nodes holds the value no more; ErrNoQuorum or ctx's error if too
// few nodes confirmed: the release goes on in the background, for no longer than the Locker's TTL.
// ErrClosed after Close. ctx bounds the waiting only. ReleaseValue returns within the node timeout
// and is safe for concurrent use.
func (l *Locker) ReleaseValue(ctx context.Context, name, value string) error {
	h := handle{op: protocol.OpRelease, name: name, value: value}
	var failure error
	for _, g := range l.places(name) { // a lock whose group changes has another value in each
		err := g.releaseValue(ctx, h)
		if err == nil {
			return nil
		}
		if failure == nil || errors.Is(failure, ErrLost) { // it may be where it could not be looked for
			failure = err
		}
	}
	return failure
}

func (g *group) releaseValue(ctx context.Context, h handle) error {
	a, err := g.adopt(ctx, h, nil)
	if err != nil {
		return err
	}
	defer g.inflight.done()
	defer g.awaitObservers()
	r := g.release(releaseOf{ctx, a.settings, h.claim(a.key), quorum.All(len(g.nodes)), false}, a.settings.clock.Now())
	g.queue.changed(a.key)
	if s := g.heldWith(a.key, h.value); s != nil { // the nodes give this Locker no hint
		for i := range g.nodes {
			s.hinted(i)
		}
	}
	r.Wait(ctx, a.settings.timeout(), ballot.Settled)
	if failure := r.unconfirmed(ctx, ErrLost); failure != nil {
		return failure
	}
	return nil
}

// ExtendValue lets the lock name live for the TTL of the Locker, or of the option TTL, from now on
// wherever it holds value: as Lock.Extend does, from any process. After nil the lock is certainly
// held for the TTL less Drift(TTL), counted from before the call, unless it is released by its
// value. No extension shortens a lock, neither this one nor a renewal by a holder that lives: it
// lives for as long as the longest of them says, and after a long TTL only a release ends it sooner.
// Of several names or permits no lock can be adopted as a whole: a name stands for its own key only.
//
// Nothing renews the lock after that, and no context tells that it is lost: whoever adopts a lock
// calls ExtendValue in time, and stops working when an extension did not succeed in time. A holder
// that lives goes on renewing it, and releases it when it is done or its own time is over. As for
// ReleaseValue, the locks of readers cannot be adopted.
//
// Errors: ErrLost if a majority of nodes holds the value no more; ErrNoQuorum or ctx's error if too
// few nodes answered: some nodes may have extended it all the same, and asking again makes sense.
// ErrClosed after Close. Of the options TTL and NodeTimeout count. ExtendValue takes one round
// trip, one more where a node's record has changed since this Locker read it, and two more where the
// TTL must be entered into the records first. Each waits for the node timeout at most. It is safe for
// concurrent use.
func (l *Locker) ExtendValue(ctx context.Context, name, value string, opts ...Option) error {
	h := handle{op: protocol.OpExtend, name: name, value: value}
	places := l.places(name)
	if len(places) > 1 { // nothing would extend what the holder has in the other group
		return fmt.Errorf("redlock: extend %q: the map of the groups is being changed, and until all clients have the new one "+
			"only the lock's holder can extend it", name)
	}
	return places[0].extendValue(ctx, h, opts)
}

func (g *group) extendValue(ctx context.Context, h handle, opts []Option) error {
	a, err := g.adopt(ctx, h, opts)
	if err != nil {
		return err
	}
	defer g.inflight.done()
	defer g.awaitObservers()
	if err := g.enter(ctx, h.name); err != nil {
		return err
	}
	p := g.member.Current()
	c := h.claim(a.key)
	// A key may outlive the TTLs with which its holder goes on extending it: by the longest, from
	// when that was last asked for. The step of that TTL was in use then, and fades no sooner.
	const most = 3 // as for an acquisition: votes do not count before their TTL is on record
	for try := 1; ; try++ {
		r := g.newRound(ctx, h.name, c.request(a.settings, c.ops.extend))
		r.req.Watch = g.heldWith(a.key, h.value) != nil // for the holder of this process
		r.ask()
		r.Wait(ctx, a.settings.timeout(), ballot.Settled)
		r.WaitForRecords(ctx, 2*a.settings.timeout(), ballot.Settled)
		failure := a.unextended(r)
		switch {
		case failure == nil && p.IsOver(a.settings.clock.Now()): // clients of another version may have the name
			return fmt.Errorf("redlock: extend %q: %w", h.name, errAbsent)
		case failure == nil:
			return nil
		case try == most || ctx.Err() != nil || !r.couldWin(ctx, 2*a.settings.timeout()):
			return failure
		}
	}
}

// A handle is what another process knows of a lock, and wants of it.
type handle struct {
	op          protocol.Op
	name, value string
}

// claim is the handle as a claim. That it may have a token matters to its own client only.
func (h handle) claim(key string) claim {
	return claim{ops: plainOps, name: h.name, key: key, value: h.value}
}

// adopt checks the arguments. The caller, if it gets no error, tells inflight when it is done.
func (g *group) adopt(ctx context.Context, h handle, opts []Option) (*acquisition, error) {
	if ctx == nil {
		return nil, nilContext(h.op, h.name)
	}
	s, err := g.settings.with(opts)
	if err != nil {
		return nil, err
	}
	key, err := s.key(h.name)
	if err != nil {
		return nil, err
	}
	if h.value == "" {
		return nil, fmt.Errorf("redlock: %s %q: the value is empty; give that of Lock.Value", h.op, h.name)
	}
	if h.value == protocol.ReadersValue { // without it a writer would come in beside them
		return nil, fmt.Errorf("redlock: %s %q: %q stands for all readers, and is the value of no lock", h.op, h.name, h.value)
	}
	if !g.inflight.begin() {
		return nil, closedError(h.op, h.name)
	}
	return &acquisition{group: g, settings: s, name: h.name, key: key, ctx: ctx, eventCtx: ctx}, nil
}

// unextended returns why the round has not extended the lock, or nil if it has.
func (a *acquisition) unextended(r *round) *QuorumError {
	if failure := r.unconfirmed(a.ctx, ErrLost); failure != nil {
		return failure
	}
	if a.settings.clock.Now() < quorum.Deadline(r.Start(), a.settings.ttl) {
		return nil
	}
	state := r.State()
	return r.fail(&state, errStale)
}
