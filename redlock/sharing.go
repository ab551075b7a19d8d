package redlock

import (
	"context"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/membership"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// reader is the kind of lock that any number of callers hold together, and no writer beside them.
type reader struct{ exclusive }

func (reader) try(a *acquisition, plan ballot.Plan) (*Lock, error) { return a.attemptShared(plan) }

func (reader) claim(a *acquisition, now clock.Instant) claim {
	c := a.newClaim(a.key, now)
	c.ops, c.shared = sharedOps, sharedKeys(a.key)
	return c
}

func (of reader) open(s *session, a *acquisition, won winning) *Lock {
	if a.settings.sharesSession() {
		return s.openShared(a, won)
	}
	return of.exclusive.open(s, a, won)
}

// sharesSession reports whether callers with these settings hold one session together.
func (s *settings) sharesSession() bool { return s.holdTogether() && s.renew && s.maxHold == 0 }

// sharesWith reports whether callers with settings s and of hold one session together.
func (s *settings) sharesWith(of *settings) bool {
	return s.sharesSession() && of.sharesSession() && s.ttl == of.ttl && s.timeout() == of.timeout() && s.owner == of.owner
}

// sharedKeys are the keys for the readers of a lock.
func sharedKeys(key string) *protocol.Shared {
	return &protocol.Shared{Readers: keys.Readers.Of(key), Intent: keys.Intent.Of(key)}
}

// Sharing a session.

// A session of readers has a hold of its own as its holder, which no caller has; the callers'
// holds are its sharers.
type sharing struct {
	locks     []*hold
	confirmed clock.Instant        // when the round began in which the nodes last let a new reader in
	presence  *membership.Presence // which it is, nil for none
}

// sharers returns the holds that callers have of a session that they share. The session must be locked.
func (s *session) sharers() []*hold {
	if s.sharing == nil {
		return nil
	}
	return s.sharing.locks
}

// openShared gives a new session of readers its holder and its first sharer, which it returns.
func (s *session) openShared(a *acquisition, won winning) *Lock {
	holder, k := &hold{}, a.newLock(s, won.now)
	holder.open(context.Background(), s, s.settings, won.now)
	holder.quiet = k.quiet
	holder.tenure.Since, k.tenure.Since = won.since, won.since
	s.occupy(holder, won.now)
	s.sharing = &sharing{locks: []*hold{&k.hold}, confirmed: won.since}
	if a.own {
		s.sharing.presence = &membership.Presence{}
	}
	return k
}

// readers returns the session that a reader of this process can share, or nil.
func (q *queue) readers(a *acquisition) *session {
	if !a.settings.sharesSession() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[a.key]
	if ln == nil {
		return nil
	}
	for _, s := range ln.holders {
		if s.settings.sharesWith(a.settings) && s.isValid() {
			return s
		}
	}
	return nil
}

// attemptShared is attempt for a reader: it shares the session of other callers, if there is
// one.
func (a *acquisition) attemptShared(first ballot.Plan) (*Lock, error) {
	for {
		s := a.group.queue.readers(a)
		if s == nil {
			return a.attempt(first)
		}
		if !s.isConfirmed() {
			r, err := a.confirm(s)
			switch {
			case err != nil:
				return nil, err
			case r == nil: // the session has ended
				continue
			}
		}
		if k := s.join(a); k != nil {
			a.group.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name}, k.tenure.Since, &k.hold)
			return k, nil
		}
	}
}

// isConfirmed reports whether the session can be joined without asking the nodes whether a writer has
// begun to wait: within a turn. A waiting writer is held up by that much.
func (s *session) isConfirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return now < s.sharing.confirmed.Add(turnLength(s.cost)) && s.lease.Until().Sub(now) >= s.settings.ttl/2
}

// join makes another Lock that shares the session, or returns nil if that has ended.
func (s *session) join(a *acquisition) *Lock {
	now := s.now()
	k := a.newLock(s, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lease.IsValid(now) {
		return nil
	}
	k.place = int32(len(s.sharing.locks))
	s.sharing.locks = append(s.sharing.locks, &k.hold)
	return k
}

// leave takes k out of those that share the session. It reports whether k was the last, as one
// is that shares it with nobody. The session must be locked.
func (s *session) leave(k *hold) (last bool) {
	n := len(s.sharers()) - 1
	if n <= 0 {
		return true
	}
	locks := s.sharing.locks
	locks[k.place] = locks[n]
	locks[k.place].place = k.place
	s.sharing.locks = slices.Delete(locks, n, n+1)
	return false
}

// confirm asks the nodes once more for a session that this process holds, as for a new reader:
// they refuse if a writer waits. If a quorum grants, the round is returned, by which the session is
// extended, too. Both are nil if the session has ended.
func (a *acquisition) confirm(s *session) (*round, error) {
	g := a.group
	if !g.inflight.begin() {
		return nil, closedError(protocol.OpAcquire, a.name)
	}
	defer g.inflight.done()
	s.mu.Lock()
	if s.lease.Ended() != lease.Held {
		s.mu.Unlock()
		return nil, nil
	}
	r := g.newRound(a.eventCtx, a.name, s.claim.request(s.settings, s.ops.acquire))
	a.askedAt = r.Start()
	s.lease.Asking(r)
	s.lease.MayHold(g.voters.All())
	r.listenFor(s)
	s.mu.Unlock()
	asked := false
	r.AskIf(g.voters.All(), &r.req, r, func() bool { asked = s.isValid(); return asked })
	if !asked {
		return nil, nil
	}
	limit := s.settings.timeout()
	r.Wait(a.ctx, limit, ballot.Decided)
	r.WaitForRecords(a.ctx, 2*limit, ballot.Decided)
	s.learn(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := r.State()
	if ballot.IsWon(&state) && s.now() < quorum.Deadline(r.Start(), s.settings.ttl) {
		s.sharing.confirmed = max(s.sharing.confirmed, r.Start())
		return r, nil
	}
	if isDone(g.closed) {
		return nil, closedError(protocol.OpAcquire, a.name)
	}
	err := r.fail(&state, failureOf(a.ctx, &state, state.Tally))
	err.Remaining = freeIn(&state, &state)
	g.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name, Votes: err.Votes, Err: err}, r.Start(), nil)
	return nil, err
}

// Downgrade makes a writer's lock that of a reader, without a moment between in which another
// writer could have it: readers come in, and the lock goes on under the same Context. It
// extends the lock as Extend does, and has the same errors. After an error other than ErrLost,
// ErrReleased and ErrClosed the lock is still held, as a reader's by some nodes and as a writer's
// by others, and the next renewal or Downgrade goes on with it. For a reader it is Extend. The
// fencing token stays what it was, and orders no write that comes after. Locks of several names and
// those with Permits stay what they are: Downgrade is an error for them, and changes nothing.
func (k *Lock) Downgrade(ctx context.Context) error {
	s := k.session
	if ctx == nil {
		return nilContext(protocol.OpExtend, s.name)
	}
	switch { // readers lock one name, and have one set for it
	case len(k.Names()) > 1:
		return fmt.Errorf("redlock: downgrade %q: readers lock one name at a time, and this is a lock of several names: keep it, or release it", k.Name())
	case s.permit != nil:
		return fmt.Errorf("redlock: downgrade %q: a permit is no writer's lock: keep it, or release it", s.name)
	}
	defer s.group.awaitObservers()
	for _, part := range k.holds() {
		if err := part.downgrade(ctx); err != nil {
			return err
		}
	}
	return nil
}

// downgrade is Downgrade for one hold.
func (k *hold) downgrade(ctx context.Context) error {
	s := k.session
	s.mu.Lock()
	watched := false
	if k.phase == lease.Held && s.ops != sharedOps {
		s.ops, s.block, s.shared = sharedOps, nil, sharedKeys(s.key)
		watched = s.lease.Downgrade()
	}
	s.mu.Unlock()
	if watched {
		s.group.watches.remove(s)
	}
	if err := extendAll(ctx, []*hold{k}); err != nil {
		return err
	}
	s.group.queue.changed(s.key)
	return nil
}
