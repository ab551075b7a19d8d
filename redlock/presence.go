package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/agenda"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/membership"
)

// A mapped group is what package membership sees of one: its marks and locks.
type mapped struct {
	*group
	name  string
	plain *settings // of the Locker, without the group's prefix
}

// Servers implements membership.Group.
func (m mapped) Servers() (names []string) {
	for _, n := range m.nodes {
		names = append(names, n.String())
	}
	return names
}

// AskForMarks implements membership.Group.
func (m mapped) AskForMarks(ctx context.Context) func() ([]int64, error) {
	r := m.askForMark(ctx, m.plain, membership.VersionName)
	return func() ([]int64, error) {
		r.Wait(ctx, m.settings.timeout(), ballot.Complete)
		marks, failure := r.marks(ctx)
		if failure != nil {
			return nil, failure
		}
		return marks, nil
	}
}

// markLife is how long the mark of a stage outlives its last writing.
const markLife = 10 * maxTTL

// Establish implements membership.Group.
func (m mapped) Establish(ctx context.Context, mark int64) {
	s := m.plain
	r := m.newRound(ctx, membership.VersionName, protocol.Request{
		Op: protocol.OpAcquire, Key: s.markOf(membership.VersionName), Value: strconv.FormatInt(mark, 10), TTL: markLife, Timeout: s.timeout(),
	})
	r.ask()
	r.Wait(ctx, s.timeout(), ballot.Complete)
}

// Raise implements membership.Group.
func (m mapped) Raise(ctx context.Context, to int64) error {
	r := m.askToMark(ctx, m.plain, membership.VersionName, mark{to, markLife})
	r.Wait(ctx, m.plain.timeout(), ballot.Settled)
	if failure := r.unconfirmed(ctx, ErrMarked); failure != nil {
		return failure
	}
	return nil
}

// Lock implements membership.Group. The lock stands for no name of a caller, and needs no presence.
func (m mapped) Lock(ctx context.Context, name string, shared bool) (membership.Lock, error) {
	s := m.settings
	s.shared, s.permits, s.fenced, s.fair, s.owner, s.renew, s.maxHold = shared, 1, false, false, "", true, 0
	a := &acquisition{group: m.group, settings: &s, name: name, key: s.prefix + name, own: true, ctx: ctx, eventCtx: ctx}
	k, err := a.once()
	if err != nil {
		return nil, err
	}
	return ownLock{k}, nil
}

// EndUnder implements membership.Group.
func (m mapped) EndUnder(p *membership.Presence, cause error) {
	if !errors.Is(cause, ErrClosed) {
		cause = fmt.Errorf("redlock: %w: the Locker's presence in group %q ended: %w", ErrLost, m.name, cause)
	}
	for _, s := range m.agenda.All(func(s *session) bool { return s.lease.IsWithin(p.Until()) }) {
		if s.end(lease.Along, cause) {
			m.agenda.Add(s, agenda.GiveBack)
		}
	}
}

// An ownLock is one that package membership has.
type ownLock struct{ *Lock }

// Presence implements membership.Lock.
func (k ownLock) Presence() *membership.Presence {
	s := k.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.Ended() == lease.Held {
		s.isPresence().ExtendTo(s.lease.Until())
	}
	return s.isPresence()
}

// Drop implements membership.Lock.
func (k ownLock) Drop() { k.session.drop(lease.Released) }

// isPresence returns the presence that a session is, nil if it is none.
func (s *session) isPresence() *membership.Presence {
	if s.sharing == nil {
		return nil
	}
	return s.sharing.presence
}

// heldUnder returns the presence under which the acquisition's lock is to be, or nil for a lock that needs
// none.
func (a *acquisition) heldUnder() *membership.Presence {
	if a.own {
		return nil
	}
	return a.group.member.Current()
}

// enter makes sure of the Locker's presence in the group, for the lock name.
func (g *group) enter(ctx context.Context, name string) error {
	if g.member == nil {
		return nil
	}
	err := g.member.Enter(ctx)
	of := g.failure(name, errMapHeld)
	var failure *QuorumError
	switch {
	case errors.Is(err, membership.ErrClosed):
		return closedError(protocol.OpAcquire, name)
	case errors.As(err, &failure):
		of.Err, of.Causes, of.Votes = failure.Err, failure.Causes, failure.Votes
		if of.Err == ErrHeld {
			of.Err = errMapHeld
		}
	case err == nil || errors.Is(err, ErrMap) || errors.Is(err, ErrClosed):
		return err
	case !errors.Is(err, membership.ErrNotYet):
		of.Err = err
	}
	return of
}
