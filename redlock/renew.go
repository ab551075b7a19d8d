package redlock

import (
	"context"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/agenda"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// What a session asks of the nodes to keep its claim, and what it makes of their answers.

// Votes implements lease.Round.
func (r *round) Votes() lease.Votes {
	state := r.State()
	return lease.Votes{Granted: state.With(protocol.Granted), Tally: state.Tally}
}

// Mark implements lease.Round.
func (r *round) Mark() *lease.Mark { return &r.mark }

// nextRound makes an extension. The session must be locked, and have a holder.
func (s *session) nextRound() *round {
	req := s.claim.request(s.settings, s.ops.extend)
	req.Watch = s.lease.IsWatched()
	r := s.group.newRound(s.holder.caller, s.name, req)
	s.lease.Extending(r)
	r.listenFor(s)
	return r
}

// listenFor has the session hear of each reply to the round.
func (r *round) listenFor(s *session) {
	r.session.Store(s)
	r.Listen()
}

// Due implements agenda.Item: the Lease wants to be looked at.
func (s *session) Due(now clock.Instant) agenda.Work {
	s.mu.Lock()
	todo := s.lease.Due(now)
	open := s.follow(todo)
	switch {
	case !open:
		if s.end(lease.Closed, nil) {
			s.giveBackClosed(now)
		}
	case todo.End != lease.Held:
		return agenda.GiveBack
	case todo.Renew:
		return agenda.Renew
	case todo.Look:
		return agenda.Look
	}
	return agenda.Nothing
}

// Do implements agenda.Item.
func (s *session) Do(w agenda.Work, inVain bool) {
	switch {
	case w == agenda.GiveBack && inVain:
		s.abandon()
	case w == agenda.GiveBack:
		s.giveBack(s.now())
	case w == agenda.Renew && !inVain:
		s.renew()
	case w == agenda.Look && !inVain:
		s.look()
	}
}

// IsUrgent implements agenda.Item: the first renewal that is due is, by which a lock is kept while all
// is well.
func (s *session) IsUrgent(w agenda.Work) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w == agenda.Renew && s.lease.IsWell()
}

// Doubt implements agenda.Item.
func (s *session) Doubt(i int) { s.hinted(i) }

// Place implements agenda.Item.
func (s *session) Place() *agenda.Place { return &s.place }

// renew asks for a renewal, if the Lease still wants it.
func (s *session) renew() {
	s.mu.Lock()
	wanted, todo := s.lease.WantsRenewal()
	var r *round
	if wanted {
		r = s.nextRound()
		todo = s.lease.Renewing(r)
	}
	if s.follow(todo) && r != nil {
		r.ask()
	}
}

// hadKey reports whether node i, which has just granted an extension, is known to have had the key
// lately: see lease.HadKey.
func (s *session) hadKey(i int) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.HadKey(i, s.now())
}

// heard is called with every reply to an extension, and with those to the
// acquisition that come after the quorum.
func (s *session) heard(r *round, i int, reply *protocol.Reply) {
	s.mu.Lock()
	todo := s.lease.Answered(r, lease.Answer{Node: i, Outcome: reply.Outcome, Absent: reply.TTL == 0}, s.now())
	s.learnt(r, todo)
	if todo.Repair {
		s.repair(r, i)
	}
}

// learn draws the conclusions from a round's replies so far.
func (s *session) learn(r *round) {
	s.mu.Lock()
	s.learnt(r, s.lease.Weigh(r, s.now()))
}

// learnt does what follows replies to a round, and unlocks the session.
func (s *session) learnt(r *round, todo lease.Todo) {
	k := s.holder
	var bond *bond
	if k != nil && k.life != nil {
		bond = k.life.bond
	}
	s.follow(todo)
	switch {
	case todo.End != lease.Held: // the goroutine of a node has replies for other locks
		s.group.agenda.Add(s, agenda.GiveBack)
	case !todo.Extended || k == nil:
	case bond != nil:
		bond.tellExtended(r.Start())
	case !k.quiet:
		s.group.tell(Event{Kind: EventExtended, Context: k.caller, Name: s.name}, r.Start(), k)
	}
}

// repair gives the lock back to node i, which has said that it has no such key:
// it was down when the lock was taken, or has forgotten.
//
// A lock that has ended must not come back. Whether it is held is looked at when
// the request's turn has come: a release is then either on its way before,
// and the lock is not held any more, or comes behind on the same connection.
func (s *session) repair(gap *round, i int) {
	s.mu.Lock()
	ctx := context.Background()
	if s.holder != nil {
		ctx = s.holder.caller
	}
	req := s.claim.repair(s.settings)
	s.mu.Unlock()

	g := s.group
	r := g.newRound(ctx, s.name, req)
	r.gap = gap
	r.trial.Repairs()
	r.listenFor(s)
	r.AskIf(quorum.Of(i), &r.req, r, s.isValid)
}

// repaired is called with the reply to a repair.
func (s *session) repaired(r *round, i int, o protocol.Outcome) {
	s.mu.Lock()
	s.follow(s.lease.Repaired(r.gap, r, lease.Answer{Node: i, Outcome: o}, s.now()))
}
