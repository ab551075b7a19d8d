package schedules

import (
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
)

// fault makes one thing go wrong, or well again. Most schedules keep to a minority of failing servers, because
// otherwise few locks would be taken.
func (s *schedule) fault() {
	servers := s.world.Servers()
	i := s.plan.IntN(len(servers))
	server := servers[i]
	c := s.anyClient()
	switch what := s.plan.IntN(14); {
	case what <= 1:
		s.faults("process paused")
		c.pauseFor(upTo(s.plan, 2*longest)) // at times for longer than its locks live
	case what <= 4:
		if !s.failing[server] && len(s.failing) < s.mayFail {
			s.fail(server)
		}
	case what <= 6 && s.forgets:
		s.forget()
	case what == 7 && s.ends:
		s.end(c)
	case what == 8 && !s.failing[server]: // it answers late
		s.faults("server hung")
		server.Hang()
		s.world.Sleep(upTo(s.plan, 200*time.Millisecond))
		server.Resume()
	case what == 9:
		for _, server := range servers {
			server.Save()
		}
	default:
		s.heal(i)
	}
	s.world.Sleep(upTo(s.plan, longest/2))
}

// anyClient draws one that has not retired.
func (s *schedule) anyClient() *client {
	for {
		if c := s.clients[s.plan.IntN(len(s.clients))]; !c.retired.Load() {
			return c
		}
	}
}

// fail has a server answer no more.
func (s *schedule) fail(server *sim.Server) {
	s.failing[server] = true
	what := s.plan.IntN(4)
	if s.long { // a process that ends may have forgotten them, and would be in quarantine for hours
		what = 3
	}
	switch what {
	case 0:
		s.faults("server crashed")
		server.Crash()
	case 1:
		s.faults("server vanished")
		server.Vanish()
	default:
		s.faults("server hung")
		server.Hang()
	}
}

// heal ends all that is wrong with a server.
func (s *schedule) heal(i int) {
	server := s.world.Servers()[i]
	server.Resume()
	server.Restart()
	delete(s.failing, server)
}

// forget makes any number of servers lose their memory at the same moment, each in a way that the guard notices.
func (s *schedule) forget() {
	servers := s.world.Servers()
	how := s.plan.IntN(4)
	for _, i := range s.plan.Perm(len(servers))[:1+s.plan.IntN(len(servers))] {
		server := servers[i]
		switch how {
		case 0:
			s.faults("server restarted without memory")
			server.Crash()
			server.Flush()
		case 1:
			s.faults("server restarted with an old state")
			server.Crash()
			server.FailOver()
		case 2:
			s.faults("server flushed")
			for range 1 + 19*s.plan.IntN(2) { // or again and again, at any moment of a vote
				server.Flush()
				s.world.Sleep(2 * time.Millisecond)
			}
		case 3:
			s.faults("server failed over and back")
			server.FailOver()
		}
		if how <= 1 && (s.plan.IntN(4) > 0 || len(s.failing) >= s.mayFail) {
			s.heal(i)
		} else if how <= 1 {
			s.failing[server] = true
		}
	}
}

// end ends a process, or its Locker, and begins another.
func (s *schedule) end(c *client) {
	if len(s.clients) >= 6 || c.retired.Swap(true) {
		return
	}
	if s.plan.IntN(2) == 0 {
		s.faults("process died")
		c.die()
	} else {
		s.faults("Locker closed")
		s.goes(func() { c.locker.Close() })
	}
	s.begin(s.newClient())
}

// newNetwork returns one that is quick, with a share of messages that take up to a TTL, or get lost. Hints have a share
// of their own, which may be all of them.
func (s *schedule) newNetwork() sim.Net {
	of := func(shares ...float64) float64 { return shares[s.plan.IntN(len(shares))] }
	base := 10*time.Microsecond + upTo(s.plan, 2*time.Millisecond)
	slow, loss, hintLoss := of(0, 0.005, 0.02, 0.2), of(0, 0, 0.005, 0.05), of(0, 0, 0.3, 1)
	if s.long { // nothing is left behind that would block others for hours
		loss = 0
	}
	return sim.Net{Patience: 400 * time.Millisecond, Travel: func(l sim.Leg, r *rand.Rand) (d time.Duration, lost bool) {
		d, lost = base/2+upTo(r, base), r.Float64() < loss || l.Hint && r.Float64() < hintLoss
		if lost {
			s.faults("message lost")
		}
		if r.Float64() < slow {
			s.faults("message slow")
			d += upTo(r, longest)
		}
		return d, lost
	}}
}
