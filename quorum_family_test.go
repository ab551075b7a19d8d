package redquorum_test

import "time"

// There are two families of schedules. Of four seeds, three play inside the
// promise, where P1 to P6 must hold, and one beyond it, where P2 must, and
// whatever else still makes sense.
//
// Inside are delay and loss, requests left behind in broken connections,
// hints that are lost, late or doubled, partitions of either way, pauses, hangs, crashes,
// any loss of memory that the guard notices on any number of servers, clock rates within the drift
// allowance, wall clocks of clients that say anything, and processes that end.
//
// Steps of servers' clocks are inside only so far:
//
//   - Back, by up to a TTL, on any servers. What they hold then lives longer,
//     which endangers nobody; everything that is waited for takes that much longer.
//   - Ahead, by more than a client can be paused or wait for a reply, on any number
//     of servers, and seen by clients only that have compared those clocks with their own
//     before. A smaller step may hide in the time that a reply takes, and a new process has nothing
//     to compare with: those go unnoticed, and the promise bears h+q-N
//     of them less one, which is none for a lock with a bare majority of an odd N.
//
// A server is either one that forgets or one whose clock is set back: both
// together are what P2 excepts.
//
// Every client knows the longest TTL before anything is forgotten. The first
// ones are told by the servers, and those that come later by redlock.MaxTTL: no
// record could tell them if all servers forgot just before.
type family struct {
	beyond  bool
	fresh   bool          // the servers are new
	fenced  int           // of eight locks
	fair    int           // likewise
	crowd   int           // callers of one process at most
	forgets bool          // servers lose memory
	ahead   time.Duration // by so much clocks are set ahead, each once; zero: none
	back    bool          // clocks are set back
	ends    bool          // processes die or close their Locker, and others come
	mayAil  int           // servers at a time
	coarse  time.Duration // by so much wall clocks advance at once, so that proposals of tokens collide
}

// newFamily draws it from the seed's plan. Most schedules have some kinds of
// trouble only, for with all of them nobody would ever hold a lock.
func (s *schedule) newFamily() family {
	f := family{
		beyond:  s.seed%4 == 0,
		fresh:   s.plan.IntN(8) == 0,
		fenced:  []int{0, 0, 4, 8, 8}[s.plan.IntN(5)],
		fair:    []int{0, 0, 2, 8}[s.plan.IntN(4)],
		crowd:   []int{1, 1, 2, 4}[s.plan.IntN(4)],
		forgets: s.plan.IntN(2) == 0,
		back:    s.plan.IntN(4) == 0,
		ends:    s.plan.IntN(3) == 0,
		mayAil:  []int{0, 1, 2, 2, 5}[s.plan.IntN(5)],
	}
	f.coarse = []time.Duration{1, 1, 15 * time.Millisecond, 200 * time.Millisecond}[s.plan.IntN(4)]
	if s.plan.IntN(4) == 0 {
		f.ahead = time.Duration(10+s.plan.IntN(3600)) * time.Second
	}
	if f.beyond {
		f.fenced = 8
	} else if f.ahead > 0 {
		f.ends = false // a new process would not notice
	}
	return f
}

// wallSkew is how far a client's wall clock is off: mostly near to where tokens
// become too far from a server's clock, at fifths of the longest TTL.
func (s *schedule) wallSkew() time.Duration {
	const fifth = scheduleTTL / 5
	d := s.upTo(fifth)
	switch s.plan.IntN(6) {
	case 0:
		return 0
	case 1:
		d %= 20 * time.Microsecond
	case 2:
		d += time.Duration(s.plan.IntN(24)) * time.Hour
	case 3, 4:
		d += time.Duration(s.plan.IntN(8)) * fifth
	}
	if s.plan.IntN(3) == 0 {
		return -d
	}
	return d
}

// rate prefers the ends of what is allowed, where the margin is thinnest.
func (s *schedule) rate() float64 {
	if s.beyond && s.plan.IntN(3) == 0 {
		s.evidence.note(ratesOff)
		return 0.5 + s.plan.Float64()
	}
	switch s.plan.IntN(3) {
	case 0:
		return slowest
	case 1:
		return fastest
	}
	return slowest + (fastest-slowest)*s.plan.Float64()
}
