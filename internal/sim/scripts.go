package sim

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// What the scripts of package pool do, on a Server's keys.

// fenced runs an operation with a fencing token.
func (s *Server) fenced(req *redlock.Request) redlock.Reply {
	e, exists := s.lookup(req.Key)
	ours := exists && e.value == req.Value
	switch {
	case req.Op == redlock.OpAcquireFenced && exists && !s.keys[req.Counter].wrong, req.Op == redlock.OpRaise && !ours:
		return redlock.Reply{Outcome: redlock.Refused, TTL: s.left(e)}
	case req.Op == redlock.OpReleaseFenced && ours:
		s.remove(req.Key)
		return redlock.Reply{Outcome: redlock.Granted}
	case s.keys[req.Counter].wrong:
		return redlock.Reply{Outcome: redlock.Failed, Err: redlock.ErrWrongType}
	case req.Op == redlock.OpReleaseFenced:
		s.accept(req)
		return redlock.Reply{Outcome: redlock.Refused, TTL: s.left(e)}
	case req.Op == redlock.OpAcquireFenced && req.Token == s.counter(req):
		return redlock.Reply{Outcome: redlock.Refused}
	case req.Op == redlock.OpAcquireFenced:
		s.write(req.Key, entry{value: req.Value, expires: s.wall.now() + req.TTL})
	}
	return redlock.Reply{Outcome: redlock.Granted, Floor: s.accept(req)}
}

func (s *Server) counter(req *redlock.Request) (counter int64) {
	if e, ok := s.lookup(req.Counter); ok {
		fmt.Sscan(e.value, &counter)
	}
	return counter
}

// accept takes the token, or returns the floor above which it would.
func (s *Server) accept(req *redlock.Request) (floor int64) {
	const day = 24 * time.Hour
	counter, now, slack := s.counter(req), s.unix().Microseconds(), req.Slack.Microseconds()
	limit := now + slack
	if req.Op == redlock.OpRaise {
		limit = max(now+4*slack, counter+1000)
	}
	sameWindow := req.Op != redlock.OpRaise && req.Token/slack == counter/slack
	if req.Token <= counter || !sameWindow && (req.Token < now-slack || req.Token > limit) {
		return max(counter, now)
	}
	expires := s.wall.now() + day + 5*req.Slack + max(0, time.Duration(req.Token-now)*time.Microsecond)
	if sameWindow {
		expires = s.keys[req.Counter].expires
	}
	s.write(req.Counter, entry{value: fmt.Sprint(req.Token), expires: expires})
	return 0
}

// unix is the server's clock as its clients are told it.
func (s *Server) unix() time.Duration {
	return time.Duration(s.world.timeline.origin.UnixNano()) + s.wall.now()
}
