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
	switch what := s.plan.IntN(14); {
	case what <= 1:
		s.anyClient().pauseFor(upTo(s.plan, 2*longest)) // at times for longer than its locks live
	case what <= 4:
		if !s.failing[server] && len(s.failing) < s.mayFail {
			s.failing[server] = true
			how := []struct {
				what string
				do   func()
			}{{"server hung", server.Hang}, {"server crashed", server.Crash}, {"server vanished", server.Vanish}}[s.plan.IntN(3)]
			s.count(how.what)
			how.do()
		}
	case what <= 6 && s.forgets:
		s.forget()
	case what == 7 && s.closes:
		s.close(s.anyClient())
	case what == 8 && !s.failing[server]: // it answers late
		s.count("server hung")
		server.Hang()
		s.world.Sleep(upTo(s.plan, 200*time.Millisecond))
		server.Resume()
	default:
		s.heal(i)
	}
	s.world.Sleep(upTo(s.plan, longest/2))
}

// anyClient draws one that is open.
func (s *schedule) anyClient() *client {
	for {
		if c := s.clients[s.plan.IntN(len(s.clients))]; !c.closed.Load() {
			return c
		}
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

// close ends a Locker, and begins another process.
func (s *schedule) close(c *client) {
	if len(s.clients) < 6 && !c.closed.Swap(true) {
		s.count("Locker closed")
		s.goes(func() { c.locker.Close() })
		s.begin(s.newClient())
	}
}

// newNetwork returns one that is quick, with a share of messages that take up to a TTL, or get lost. Hints have a share
// of their own, which may be all of them.
func (s *schedule) newNetwork() sim.Net {
	of := func(shares ...float64) float64 { return shares[s.plan.IntN(len(shares))] }
	base := 10*time.Microsecond + upTo(s.plan, 2*time.Millisecond)
	slow, loss, hintLoss := of(0, 0.005, 0.02, 0.2), of(0, 0, 0.005, 0.05), of(0, 0, 0.3, 1)
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
