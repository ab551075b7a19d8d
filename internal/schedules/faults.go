package schedules

import (
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// fault makes one thing go wrong, or well again. Most schedules keep to a minority of failing
// servers, because otherwise few locks would be taken.
func (s *schedule) fault() {
	servers := s.world.Servers()
	i := s.plan.IntN(len(servers))
	server := servers[i]
	c := s.anyClient()
	switch what := s.plan.IntN(17); {
	case what <= 1:
		s.pause(c)
	case what <= 4:
		if !s.failing[server] && len(s.failing) < s.mayFail {
			s.fail(server)
		}
	case what <= 6:
		if len(s.failing) < s.mayFail {
			how := []cut{{true, true}, {true, false}, {false, true}}[s.plan.IntN(3)]
			s.failing[server] = true
			s.network.cutOff(c.id, i, how)
			s.network.cutOff(s.anyClient().id, i, how)
		}
	case what <= 8 && s.forgets:
		s.forget()
	case what == 9:
		s.setClock(i)
	case what == 10 && s.ends:
		s.end(c)
	case what == 11:
		s.coverage.fault(wallSet)
		c.wall.Store(int64(s.wallOffset()))
	case what == 13:
		s.stall(server)
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
func (s *schedule) pause(c *client) {
	d := s.upTo(2 * scheduleTTL)
	s.coverage.fault(paused)
	if d > scheduleTTL {
		s.coverage.fault(pausedPastTTL)
	}
	c.pauseFor(d)
}

// fail has a server answer no more.
func (s *schedule) fail(server *sim.Server) {
	s.failing[server] = true
	what := s.plan.IntN(4)
	if s.longTTLs { // a process that ends may have forgotten them, and would be in quarantine for hours
		what = 3
	}
	switch what {
	case 0:
		s.coverage.fault(crashed)
		server.Crash()
	case 1:
		s.coverage.fault(vanished)
		server.Vanish()
	default:
		s.coverage.fault(hung)
		server.Hang()
	}
}

// heal ends all that is wrong with a server.
func (s *schedule) heal(server *sim.Server, i int) {
	server.Resume()
	server.Restart()
	s.network.mend(i)
	delete(s.failing, server)
}

// forget makes any number of servers lose their memory at the same moment, each
// in a way that the guard notices.
func (s *schedule) forget() {
	n := 1 + s.plan.IntN(len(s.world.Servers()))
	how := s.plan.IntN(6)
	for _, i := range s.plan.Perm(len(s.world.Servers()))[:n] {
		server := s.world.Servers()[i]
		if s.setsBack(i) || !s.mayForget(i) {
			continue
		}
		s.forgot[i] = s.world.Now()
		switch how {
		case 0, 1:
			s.coverage.fault(forgotAll)
			server.Crash()
			server.Flush()
		case 2:
			s.coverage.fault(forgotSome)
			server.Crash()
			server.Load()
		case 3:
			s.coverage.fault(flushed)
			server.Flush()
			if s.plan.IntN(2) == 0 { // again and again, at any moment of a vote
				s.work.Go(func() {
					defer s.world.PrintSeed()
					for range 20 {
						s.world.Sleep(2 * time.Millisecond)
						server.Flush()
					}
				})
			}
		case 5:
			s.coverage.fault(failedOver)
			server.FailOver()
		case 4:
			s.coverage.fault(evicted)
			counters := s.plan.IntN(2) == 0
			server.Evict(func(key string) bool {
				return counters && keys.Counter.Has(key) || key == record.Key || isLock(key)
			})
		}
		if how <= 2 && (s.plan.IntN(4) > 0 || len(s.failing) >= s.mayFail) {
			server.Restart()
			s.network.mend(i)
		} else if how <= 2 {
			s.failing[server] = true
		}
	}
}

// mayForget reports whether a server may lose its memory: any number of them where all clients
// know the longest TTL, and otherwise so few within the life of a lock that a quorum is left.
func (s *schedule) mayForget(i int) bool {
	if !s.mixed || s.maxTTL {
		return true
	}
	lately := 0
	for j, at := range s.forgot {
		if j != i && !at.IsZero() && s.world.Now().Sub(at) < 2*mixedTTL {
			lately++
		}
	}
	n := len(s.forgot)
	return lately < n-(n/2+1)
}

// stall has a server answer late for a moment.
func (s *schedule) stall(server *sim.Server) {
	if s.failing[server] {
		return
	}
	s.coverage.fault(stalled)
	d := s.upTo(200 * time.Millisecond)
	server.Hang()
	s.world.Sleep(d)
	server.Resume()
}

func isLock(key string) bool { return !keys.Reserved(key) }

// setsBack reports whether a server's clock may be set back. Such a server forgets nothing.
func (s *schedule) setsBack(i int) bool { return s.back && i%2 == 1 }

// setClock sets a server's clock, as far as the profile allows. Beyond the promise
// it also takes away locks alone.
func (s *schedule) setClock(i int) {
	server := s.world.Servers()[i]
	switch {
	case s.beyond && s.plan.IntN(3) == 0:
		s.coverage.fault(evictedLocks)
		server.Evict(isLock)
	case s.setsBack(i):
		d := s.upTo(scheduleTTL)
		if s.beyond && s.plan.IntN(2) == 0 {
			d = s.upTo(time.Hour)
		}
		s.coverage.fault(setBack)
		s.later += d
		server.Step(-d)
	case s.beyond:
		s.coverage.fault(setAhead)
		server.Step(s.upTo([]time.Duration{scheduleTTL / 10, scheduleTTL, 4 * scheduleTTL, time.Hour}[s.plan.IntN(4)]))
	case s.ahead > 0 && !s.jumped[i]:
		s.coverage.fault(setAhead)
		s.jumped[i] = true
		server.Step(s.ahead)
	}
}

// end ends a process, or its Locker, and begins another.
func (s *schedule) end(c *client) {
	if len(s.clients) >= 6 || c.retired.Swap(true) {
		return
	}
	if s.plan.IntN(2) == 0 {
		s.coverage.fault(processDied)
		c.die()
	} else {
		s.coverage.fault(lockerClosed)
		s.work.Go(func() {
			defer s.world.PrintSeed()
			c.tickets.closed.Store(true)
			c.locker.Close()
		})
	}
	var opts []redlock.LockerOption
	if !s.mixed {
		opts = append(opts, redlock.MaxTTL(scheduleTTL))
	}
	s.begin(s.newClient(s.ttl(), opts...))
}
