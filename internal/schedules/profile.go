package schedules

import "time"

const (
	// Clocks differ by no more than the drift allowance covers: one per cent
	// between the slowest and the fastest.
	slowest, fastest = 0.995, 1.005
)

// A profile is what may happen in a schedule. Of four seeds, three play inside the
// promise, where P1 to P6 must hold, and one beyond it, where P2 must, and
// those parts of the others that still make sense.
//
// Inside are delay and loss, requests left behind in broken connections,
// hints that are lost, late or doubled, partitions of either way, pauses, hangs, crashes,
// any loss of memory that the guard notices on any number of servers, clock rates within the drift
// allowance, wall clocks of clients that say anything, and processes that end.
//
// Steps of servers' clocks are inside only so far:
//
//   - Back, by up to a TTL, on any servers. The keys that they hold then live longer,
//     which endangers no lock; all that is waited for takes that much longer.
//   - Ahead, by more than a client can be paused or wait for a reply, on any number
//     of servers, and seen by clients only that have compared those clocks with their own
//     before. A smaller step may hide in the time that a reply takes, and a new process has nothing
//     to compare with: those go unnoticed, and the promise bears h+q-N
//     of them less one, which is none for a lock with a bare majority of an odd N.
//
// A server is either one that forgets or one whose clock is set back: both
// together are what P2 excepts.
//
// TTLs are alike, or mixed: of each client and each call another, from 10 ms to four seconds.
// Where more servers forget than a quorum can do without, every client knows the longest
// TTL before: the first ones are told by the servers, unless these are new, and the others by
// redlock.MaxTTL, because no record could tell them if all servers forgot just before. With
// mixed TTLs half of the schedules give no MaxTTL. Then so few servers forget that the
// others can tell, and the network lets them.
//
// In some schedules the callers take permits, each of as many as it likes up to a number, and
// plain locks of the same names.
//
// Where nothing is forgotten, some callers ask for locks of hours, which must not make any
// other caller wait.
type profile struct {
	beyond   bool
	fresh    bool          // the servers are new
	fenced   int           // of eight locks
	fair     int           // likewise
	sets     int           // likewise, of several names
	readers  int           // likewise: that are shared
	permits  int           // of each name; zero: exclusive locks only
	crowd    int           // callers of one process at most
	forgets  bool          // servers lose memory
	mixed    bool          // TTLs differ
	maxTTL   bool          // all clients know the longest TTL by redlock.MaxTTL
	longTTLs bool          // some callers ask for locks of hours
	ahead    time.Duration // by so much clocks are set ahead, each once; zero: none
	back     bool          // clocks are set back
	ends     bool          // processes die or close their Locker, and others come
	mayFail  int           // servers at a time
	versions bool          // half of the clients have a later version of the library
	coarse   time.Duration // by so much wall clocks advance at once, so that proposals of tokens collide
}

// newProfile draws it from the seed's plan. Most schedules have some kinds of
// faults only, because with all of them no lock would ever be held.
func (s *schedule) newProfile() profile {
	p := profile{
		beyond:  s.seed%4 == 0,
		fresh:   s.plan.IntN(8) == 0,
		fenced:  []int{0, 0, 4, 8, 8}[s.plan.IntN(5)],
		fair:    []int{0, 0, 2, 8}[s.plan.IntN(4)],
		crowd:   []int{1, 1, 2, 4}[s.plan.IntN(4)],
		forgets: s.plan.IntN(2) == 0,
		back:    s.plan.IntN(4) == 0,
		ends:    s.plan.IntN(3) == 0,
		mayFail: []int{0, 1, 2, 2, 5}[s.plan.IntN(5)],
	}
	p.coarse = []time.Duration{1, 1, 15 * time.Millisecond, 200 * time.Millisecond}[s.plan.IntN(4)]
	if p.mixed = s.plan.IntN(3) == 0; p.mixed {
		if p.maxTTL = s.plan.IntN(2) == 0; !p.maxTTL {
			p.mayFail = 0
		}
	}
	if s.plan.IntN(4) == 0 {
		p.ahead = time.Duration(10+s.plan.IntN(3600)) * time.Second
	}
	if p.beyond {
		p.fenced = 8
	} else if p.ahead > 0 {
		p.ends = false // a new process would not notice
	}
	if dice := s.world.Rand("sets"); dice.IntN(3) == 0 { // a stream of its own leaves other seeds as they were
		p.sets = 1 + dice.IntN(6)
	}
	if dice := s.world.Rand("readers"); dice.IntN(3) == 0 {
		p.readers = 1 + dice.IntN(7)
	}
	if dice := s.world.Rand("permits"); p.fair == 0 && dice.IntN(3) == 0 {
		p.permits = 2 + dice.IntN(4)
	}
	p.versions = s.world.Rand("versions").IntN(3) == 0
	p.longTTLs = !p.beyond && !p.forgets && !p.ends && p.ahead == 0 && s.plan.IntN(2) == 0
	return p
}

// wallOffset is how far a client's wall clock is off: mostly near to where tokens
// become too far from a server's clock, at multiples of two seconds.
func (s *schedule) wallOffset() time.Duration {
	const step = 2400 * time.Millisecond
	d := s.upTo(step)
	switch s.plan.IntN(6) {
	case 0:
		return 0
	case 1:
		d %= 20 * time.Microsecond
	case 2:
		d += time.Duration(s.plan.IntN(24)) * time.Hour
	case 3, 4:
		d += time.Duration(s.plan.IntN(8)) * step
	}
	if s.plan.IntN(3) == 0 {
		return -d
	}
	return d
}

// rate draws a clock's rate. It prefers the ends of what is allowed, where the margin is
// thinnest.
func (s *schedule) rate() float64 {
	if s.beyond && s.plan.IntN(3) == 0 {
		s.coverage.count(ratesOff)
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
