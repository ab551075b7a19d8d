package redquorum_test

import (
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// upTo draws a duration above zero.
func (s *schedule) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + s.plan.Int64N(int64(d)))
}

// trouble is one thing that goes wrong, or gets right again. Most schedules
// keep to a minority of ailing servers; otherwise little would be locked.
func (s *schedule) trouble() {
	servers := s.world.Servers()
	i := s.plan.IntN(len(servers))
	server := servers[i]
	c := s.contender()
	switch what := s.plan.IntN(16); {
	case what <= 1:
		s.pause(c)
	case what <= 4:
		if !s.ailing[server] && len(s.ailing) < s.mayAil {
			s.ail(server)
		}
	case what <= 6:
		if len(s.ailing) < s.mayAil {
			way := []way{{true, true}, {true, false}, {false, true}}[s.plan.IntN(3)]
			s.ailing[server] = true
			s.weather.cut(c.id, i, way)
			s.weather.cut(s.contender().id, i, way)
		}
	case what <= 8 && s.forgets:
		s.forget()
	case what == 9:
		s.setClock(i)
	case what == 10 && s.ends:
		s.end(c)
	case what == 11:
		s.evidence.fault(wallSet)
		c.wall.Store(int64(s.wallSkew()))
	case what == 12:
		for _, server := range servers {
			server.Save()
		}
	default:
		s.heal(server, i)
	}
	s.world.Sleep(s.upTo(scheduleTTL / 2))
}

// pause stops a process, at times for longer than its locks live.
func (s *schedule) pause(c *contender) {
	d := s.upTo(2 * scheduleTTL)
	s.evidence.fault(paused)
	if d > scheduleTTL {
		s.evidence.fault(pausedPastTTL)
	}
	c.pauseFor(d)
}

func (s *schedule) ail(server *sim.Server) {
	s.ailing[server] = true
	switch s.plan.IntN(4) {
	case 0:
		s.evidence.fault(crashed)
		server.Crash()
	case 1:
		s.evidence.fault(vanished)
		server.Vanish()
	default:
		s.evidence.fault(hung)
		server.Hang()
	}
}

func (s *schedule) heal(server *sim.Server, i int) {
	server.Resume()
	server.Restart()
	s.weather.mend(i)
	delete(s.ailing, server)
}

// forget makes any number of servers lose their memory at the same moment, each
// in a way that the guard notices.
func (s *schedule) forget() {
	n := 1 + s.plan.IntN(len(s.world.Servers()))
	how := s.plan.IntN(5)
	for _, i := range s.plan.Perm(len(s.world.Servers()))[:n] {
		server := s.world.Servers()[i]
		if s.setsBack(i) {
			continue
		}
		switch how {
		case 0, 1:
			s.evidence.fault(forgotAll)
			server.Crash()
			server.Flush()
		case 2:
			s.evidence.fault(forgotSome)
			server.Crash()
			server.Load()
		case 3:
			s.evidence.fault(flushed)
			server.Flush()
		case 4:
			s.evidence.fault(evicted)
			counters := s.plan.IntN(2) == 0
			server.Evict(func(key string) bool {
				return counters && strings.HasPrefix(key, "redlock:fence:") || key == "redlock:epoch" || isLock(key)
			})
		}
		if how <= 2 && (s.plan.IntN(4) > 0 || len(s.ailing) >= s.mayAil) {
			server.Restart()
			s.weather.mend(i)
		} else if how <= 2 {
			s.ailing[server] = true
		}
	}
}

func isLock(key string) bool { return !strings.Contains(key, "redlock:") }

// setsBack says which servers' clocks may be set back. Those forget nothing.
func (s *schedule) setsBack(i int) bool { return s.back && i%2 == 1 }

// setClock sets a server's clock, as far as the family allows. Beyond the promise
// it also takes away locks alone.
func (s *schedule) setClock(i int) {
	server := s.world.Servers()[i]
	switch {
	case s.beyond && s.plan.IntN(3) == 0:
		s.evidence.fault(evictedLocks)
		server.Evict(isLock)
	case s.setsBack(i):
		d := s.upTo(scheduleTTL)
		if s.beyond && s.plan.IntN(2) == 0 {
			d = s.upTo(time.Hour)
		}
		s.evidence.fault(setBack)
		s.later += d
		server.Step(-d)
	case s.beyond:
		s.evidence.fault(setAhead)
		server.Step(s.upTo([]time.Duration{scheduleTTL / 10, scheduleTTL, 4 * scheduleTTL, time.Hour}[s.plan.IntN(4)]))
	case s.ahead > 0 && !s.jumped[i]:
		s.evidence.fault(setAhead)
		s.jumped[i] = true
		server.Step(s.ahead)
	}
}

// end ends a process, or its Locker, and begins another.
func (s *schedule) end(c *contender) {
	if len(s.clients) >= 6 || !c.retire() {
		return
	}
	if s.plan.IntN(2) == 0 {
		s.evidence.fault(processDied)
		c.die()
	} else {
		s.evidence.fault(lockerClosed)
		s.work.Go(func() {
			defer s.world.Blame()
			c.tickets.closed.Store(true)
			c.locker.Close()
		})
	}
	s.begin(s.newContender(s.ttl(), redlock.MaxTTL(scheduleTTL)))
}
