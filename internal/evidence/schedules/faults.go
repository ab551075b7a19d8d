package schedules

import (
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
)

// fault causes or ends one fault. In most schedules only a minority of servers fails, because
// otherwise few locks would be acquired.
func (s *schedule) fault() {
	servers := s.world.Servers()
	i := s.plan.IntN(len(servers))
	server := servers[i]
	switch what := s.plan.IntN(14); {
	case what <= 1:
		s.anyClient().pauseFor(upTo(s.plan, 2*longest)) // sometimes longer than the TTL of its locks
	case what <= 4:
		if !s.failing[server] && len(s.failing) < s.mayFail {
			s.failing[server] = true
			how := []struct {
				what string
				do   func()
			}{
				{"server hung", server.Hang}, {"server crashed", server.Crash}, {"server vanished", server.Vanish},
				{"server denied requests", func() { server.Deny(true) }},
			}[s.plan.IntN(4)]
			s.count(how.what)
			how.do()
		}
	case what <= 6 && s.forgets:
		s.forget()
	case what == 7 && s.closes:
		s.close(s.anyClient())
	case what == 8 && !s.failing[server]: // the server answers late
		s.count("server hung")
		server.Hang()
		s.world.Sleep(upTo(s.plan, 200*time.Millisecond))
		server.Resume()
	default:
		s.heal(i)
	}
	s.world.Sleep(upTo(s.plan, longest/2))
}

// anyClient draws a client that is not closed.
func (s *schedule) anyClient() *client {
	for {
		if c := s.clients[s.plan.IntN(len(s.clients))]; !c.closed.Load() {
			return c
		}
	}
}

// heal ends all faults of a server.
func (s *schedule) heal(i int) {
	server := s.world.Servers()[i]
	server.Resume()
	server.Restart()
	server.Deny(false)
	delete(s.failing, server)
}

// forget makes any number of servers lose their memory at the same moment, each in a way that the
// guard notices.
func (s *schedule) forget() {
	restart := s.plan.IntN(2) == 0
	for _, i := range s.plan.Perm(len(s.world.Servers()))[:1+s.plan.IntN(len(s.world.Servers()))] {
		server := s.world.Servers()[i]
		if !restart {
			s.count("server flushed")
			server.Flush()
			continue
		}
		s.count("server restarted without memory")
		server.Crash()
		server.Flush()
		s.heal(i)
	}
}

// close closes a Locker, and starts another process.
func (s *schedule) close(c *client) {
	if len(s.clients) < 6 && !c.closed.Swap(true) {
		s.count("Locker closed")
		s.goes(func() { c.locker.Close() })
		s.begin(s.newClient())
	}
}

// newNetwork returns a fast network. A share of the messages takes up to a TTL or gets lost. Hints
// have their own share of losses, which may be all hints.
func (s *schedule) newNetwork() sim.Net {
	of := func(shares ...float64) float64 { return shares[s.plan.IntN(len(shares))] }
	base := 10*time.Microsecond + upTo(s.plan, 2*time.Millisecond)
	slow, loss, hintLoss := of(0, 0.005, 0.02, 0.2), of(0, 0, 0.005, 0.05), of(0, 0, 0.3, 1)
	if s.calm {
		slow, loss, hintLoss, s.trip = 0, 0, 0, 3*base
	}
	return sim.Net{Patience: 400 * time.Millisecond, Travel: func(l sim.Leg, r *rand.Rand) (d time.Duration, lost bool) {
		d, lost = base/2+upTo(r, base), r.Float64() < loss || l.Hint && r.Float64() < hintLoss
		if lost {
			s.count("message lost")
		}
		if r.Float64() < slow {
			s.count("message slow")
			d += upTo(r, longest)
		}
		return d, lost
	}}
}
