package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A queue is tickets in their order. It never changes, but is made anew: what was
// saved stays as it was.
type queue struct{ tickets []ticket }

// A ticket is a place in a queue.
type ticket struct {
	id      string
	arrived time.Duration // since 1970, as is the other
	dropped time.Duration // when it may be, unless it is seen again
}

// stand runs an OpQueue, as the script of package pool does.
func (s *Server) stand(req *redlock.Request) redlock.Reply {
	e, exists := s.lookup(req.Key)
	if exists && e.queue == nil {
		return redlock.Reply{Outcome: redlock.Failed, Err: redlock.ErrWrongType}
	}
	var tickets []ticket
	if exists {
		tickets = slices.Clone(e.queue.tickets)
	}
	mine, now := req.Ticket, s.unix().Truncate(time.Millisecond)
	i := slices.IndexFunc(tickets, func(t ticket) bool { return t.id == mine.ID })
	first := firstOf(tickets)
	if mine.Leave {
		if i >= 0 {
			s.keep(req.Key, slices.Delete(slices.Clone(tickets), i, i+1), e.expires)
			s.call(req, first)
		}
		return redlock.Reply{Outcome: redlock.Granted}
	}
	if i < 0 {
		i = len(tickets)
		tickets = append(tickets, ticket{id: mine.ID, arrived: now - mine.Waited.Truncate(time.Millisecond)})
	}
	tickets[i].dropped = now + mine.Life.Truncate(time.Millisecond)
	slices.SortFunc(tickets, func(a, b ticket) int {
		return cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.id, b.id))
	})
	for tickets[0].dropped <= now { // ours is not
		tickets = tickets[1:]
	}
	s.keep(req.Key, tickets, max(e.expires, s.wall.now()+3*mine.Life))
	s.call(req, first)
	if tickets[0].id == mine.ID {
		return redlock.Reply{Outcome: redlock.Granted}
	}
	return redlock.Reply{Outcome: redlock.Refused}
}

func firstOf(tickets []ticket) string {
	if len(tickets) == 0 {
		return ""
	}
	return tickets[0].id
}

// call makes a key that the ticket watches which has become the first by another's
// doing.
func (s *Server) call(req *redlock.Request, before string) {
	e, _ := s.lookup(req.Key)
	if e.queue == nil {
		return
	}
	if first := firstOf(e.queue.tickets); first != before && first != req.Ticket.ID {
		s.write(req.Key+":"+first, entry{expires: s.wall.now() + req.Ticket.Life})
	}
}

// keep writes a queue. Redis has no empty ones.
func (s *Server) keep(key string, tickets []ticket, expires time.Duration) {
	if len(tickets) == 0 {
		s.remove(key)
		return
	}
	s.write(key, entry{wrong: true, queue: &queue{tickets}, expires: expires})
}
