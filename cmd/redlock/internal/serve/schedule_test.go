package serve

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A schedule is a random history of clients of two Servers: they poll, stop polling, die, leave
// while they wait, repeat requests, release and arrive too late. The first Server is restarted or
// ends. Unless calm is set, Redis servers fail too, one at a time.
type schedule struct {
	t        *testing.T
	calm     bool
	world    *sim.World
	locker   *redlock.Locker // of the second Server
	first    *address
	second   *address
	problems []string

	mu    sync.Mutex // guards calls and their fields
	calls []*call
}

const (
	nodeTimeout = 500 * time.Millisecond // default of a Locker
	trip        = 4 * time.Millisecond   // longest time of a message and its answer
	longestTTL  = 16 * time.Second
)

// An address leads to a Server, or to its successor after a restart.
type address struct{ server atomic.Pointer[Server] }

// ServeHTTP implements http.Handler. A connection that the Server cuts counts as its end.
func (a *address) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cut := recover(); cut == http.ErrAbortHandler {
			api.ErrEnding.Write(w)
		} else if cut != nil {
			panic(cut)
		}
	}()
	a.server.Load().ServeHTTP(w, r)
}

// A call is one request for a lock, from its sending to the end of its lease.
type call struct {
	server  *Server
	name    string
	wait    time.Duration
	repeats bool // sent twice, with one Idempotency-Key
	came    time.Time
	left    time.Time // when the client left; zero: it did not
	over    time.Time // when the answer arrived; zero: not yet
	got     answer
	until   time.Time // end of the client's work
	gone    time.Time // when the lock must be free; zero: unknown
	broken  string    // answer that broke a promise of the Server
}

func (c *call) isGranted() bool { return c.got.status == http.StatusCreated }

// waits reports whether the call waited in line until its answer.
func (c *call) waits() bool { return c.wait > 0 && !c.repeats && c.left.IsZero() }

// The judges check a call after the schedule. A calm schedule has judges of its own.
var judges = []struct {
	name     string
	isCalm   bool
	isBroken func(s *schedule, c *call) bool
}{
	{"no two clients work at the same time", false, func(s *schedule, c *call) bool {
		return c.isGranted() && s.has(func(o *call) bool {
			return o != c && o.isGranted() && o.name == c.name && !o.over.Before(c.over) && o.over.Before(c.until)
		})
	}},
	{"a request ends after its wait", false, func(_ *schedule, c *call) bool {
		limit := c.wait
		if c.repeats { // the second request may wait for the first one before its own wait
			limit += max(c.wait, time.Second)
		}
		return c.over.Sub(c.came) > limit+3*nodeTimeout
	}},
	{"a request ends when its client leaves", false, func(_ *schedule, c *call) bool {
		return !c.left.IsZero() && c.over.After(c.left) && c.over.Sub(c.left) > 3*nodeTimeout
	}},
	{"a promise of time is kept", true, func(_ *schedule, c *call) bool { return c.broken != "" }},
	{"a refusal has a holder", true, func(s *schedule, c *call) bool {
		return c.got.problem.Kind == api.KindHeld && !c.repeats && !s.has(func(o *call) bool {
			return o != c && o.name == c.name && o.came.Before(c.over) && (o.gone.IsZero() || o.gone.Add(5*trip).After(c.came))
		})
	}},
	{"no other error than a refusal", true, func(_ *schedule, c *call) bool {
		ended := c.got.problem.Kind == api.KindEnding // the Server was restarted
		return !c.isGranted() && c.left.IsZero() && c.got.problem.Kind != api.KindHeld && !ended
	}},
	{"who waits long enough gets the lock", true, func(_ *schedule, c *call) bool {
		return c.waits() && c.wait > 10*longestTTL && c.got.problem.Kind == api.KindHeld
	}},
	{"who waits in line is not passed", true, func(s *schedule, c *call) bool {
		return c.isGranted() && c.waits() && s.has(func(o *call) bool {
			return o.server == c.server && o.name == c.name && o.isGranted() && o.waits() && c.came.Add(trip).Before(o.came) && o.over.Before(c.over)
		})
	}},
}

func (s *schedule) has(is func(*call) bool) bool { return slices.ContainsFunc(s.calls, is) }

// TestClientsNeverWorkAtTheSameTime: each client also gets a true answer, in time and in order.
func TestClientsNeverWorkAtTheSameTime(t *testing.T) {
	t.Parallel()
	seeds, granted := uint64(12), 0
	switch {
	case testing.Short():
		seeds = 6
	case testenv.Long():
		seeds = 400
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := &schedule{t: t, calm: seed%2 == 0, world: sim.New(seed, 3)}
			s.run(rand.New(rand.NewPCG(seed, 0)))
			for _, c := range s.calls {
				if c.isGranted() {
					granted++
				}
				for _, j := range judges {
					if (s.calm || !j.isCalm) && j.isBroken(s, c) {
						t.Errorf("seed %d: %s: %v", seed, j.name, c)
					}
				}
			}
			for _, p := range s.problems {
				t.Errorf("seed %d: %s", seed, p)
			}
		})
	}
	assert.Greater(t, granted, 10*int(seeds), "locks that were granted")
}

// newServer starts a process with a Server.
func (s *schedule) newServer(c Config) *Server {
	process := s.world.NewClient(1)
	s.locker = sim.Locker(s.t, process)
	server := New(s.locker, c)
	s.t.Cleanup(func() { endNow(server) })
	return server
}

func (s *schedule) run(r *rand.Rand) {
	s.world.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
		return time.Duration(r.Int64N(int64(trip / 2))), false
	}})
	s.first, s.second = &address{}, &address{}
	s.first.server.Store(s.newServer(Config{TTL: 10 * time.Second}))
	s.second.server.Store(s.newServer(Config{TTL: 10 * time.Second}))
	var clients sync.WaitGroup
	for i := range 6 {
		dice := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		clients.Go(func() {
			for range 8 {
				time.Sleep(upTo(dice, 3*time.Second))
				s.work(dice)
			}
		})
	}
	faults, end := context.WithCancel(s.t.Context())
	go s.fail(faults, rand.New(rand.NewPCG(r.Uint64(), 0)))
	time.Sleep(upTo(r, 60*time.Second))
	if s.calm || r.IntN(2) == 0 {
		s.restart()
	} else {
		grace, cancel := context.WithTimeout(s.t.Context(), time.Duration(r.IntN(8))*time.Second)
		s.first.server.Load().Close(grace)
		cancel()
	}
	clients.Wait()
	end()
	time.Sleep(2 * longestTTL)
	for _, at := range []*address{s.first, s.second} {
		if all := at.server.Load().table; s.calm && len(all.all())+len(all.leases)+all.reserved > 0 {
			s.problems = append(s.problems, "sessions or leases are left")
		}
	}
	for _, server := range s.world.Servers() {
		if keys := server.Locks(); s.calm && len(keys) > 0 {
			s.problems = append(s.problems, fmt.Sprint("keys are left: ", keys))
		}
	}
}

// restart replaces the first Server by another process, which takes over its sessions.
func (s *schedule) restart() {
	state := s.first.server.Load().Leave()
	next := s.newServer(Config{TTL: 10 * time.Second, Resumes: true})
	s.first.server.Store(next)
	next.Resume(s.t.Context(), state)
}

// fail makes one server fail at a time until ctx ends.
func (s *schedule) fail(ctx context.Context, r *rand.Rand) {
	for !s.calm && ctx.Err() == nil {
		server := s.world.Servers()[r.IntN(3)]
		[]func(){server.Hang, server.Crash, server.Vanish}[r.IntN(3)]()
		time.Sleep(upTo(r, 6*time.Second))
		server.Resume()
		server.Restart()
		time.Sleep(upTo(r, 4*time.Second))
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(1 + r.Int64N(int64(d))) }

// work requests a lock, and keeps it for a while in one of several ways.
func (s *schedule) work(r *rand.Rand) {
	at := []*address{s.first, s.second}[r.IntN(2)]
	c := &call{name: []string{"a", "a", "b"}[r.IntN(3)], wait: []time.Duration{0, 2 * time.Second, 30 * time.Second, 10 * time.Minute}[r.IntN(4)]}
	ttl, sessionTTL := time.Second+upTo(r, longestTTL-time.Second), time.Second+upTo(r, longestTTL-time.Second)
	client := &client{t: s.t, server: at}
	if isLone := r.IntN(3) == 0; isLone {
		sessionTTL = ttl
	} else {
		a := client.ask("POST", "/v1/sessions", `{"ttl_ms":`+text(sessionTTL.Milliseconds())+`}`)
		if a.status != http.StatusCreated {
			return
		}
		client.session = a.session.Session
		c.repeats = r.IntN(4) == 0
	}
	s.ask(r, client, c, `{"name":"`+c.name+`","wait_ms":`+text(c.wait.Milliseconds())+`,"ttl_ms":`+text(ttl.Milliseconds())+`}`)
	if !c.isGranted() {
		return
	}
	if c.got.lease.Session != "" {
		client.session = c.got.lease.Session
	}
	last := s.hold(r, client, c)
	path := []string{"/v1/locks/" + c.got.lease.Lease, "/v1/session", ""}[r.IntN(3)]
	s.mu.Lock()
	defer s.mu.Unlock()
	c.gone = last.Add(sessionTTL) // it dies
	if now := time.Now(); path != "" && now.Before(c.until) {
		c.until = now
		s.mu.Unlock()
		a := client.ask("DELETE", path, "")
		s.mu.Lock()
		if a.status == http.StatusNoContent {
			c.gone = time.Now()
		}
	}
}

// ask sends the request of c, and another copy if it is repeated.
func (s *schedule) ask(r *rand.Rand, by *client, c *call, body string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	if r.IntN(6) == 0 {
		defer time.AfterFunc(upTo(r, 3*time.Second), func() {
			s.mu.Lock()
			c.left = time.Now()
			s.mu.Unlock()
			cancel()
		}).Stop()
	}
	s.mu.Lock()
	c.came, c.server = time.Now(), by.server.(*address).server.Load()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	var copied answer
	var copies sync.WaitGroup
	if c.repeats {
		by.headers = map[string]string{"Idempotency-Key": "1"}
		later := upTo(r, time.Second)
		copies.Go(func() {
			time.Sleep(later)
			copied = by.askUnder(ctx, "POST", "/v1/locks", body)
		})
	}
	got := by.askUnder(ctx, "POST", "/v1/locks", body)
	copies.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got.status == http.StatusCreated && copied.status == http.StatusCreated && got.lease.Lease != copied.lease.Lease {
		s.problems = append(s.problems, "two leases have one Idempotency-Key")
	}
	if got.status != http.StatusCreated && copied.status == http.StatusCreated {
		got = copied
	}
	c.got, c.over = got, time.Now()
	if c.until = c.over; c.isGranted() && got.end().After(c.over) {
		c.until = got.end()
	} else if !c.isGranted() {
		c.gone = c.over
	}
}

// hold polls the session of a lease. It returns the time of the last answer.
func (s *schedule) hold(r *rand.Rand, by *client, c *call) (last time.Time) {
	last = c.over
	seen := int64(0)
	for range r.IntN(6) {
		time.Sleep(upTo(r, 4*time.Second))
		query := ""
		if seen > 0 && r.IntN(2) == 0 {
			query = "?wait_ms=3000&seen=" + text(seen)
		}
		var a answer
		for ok := true; ok; ok = a.problem.Kind == api.KindEnding && s.calm { // a restart
			if !time.Now().Before(c.until) { // too late: the client must have ended its work
				return last
			}
			if a = by.ask("GET", "/v1/session"+query, ""); a.status != http.StatusOK {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if a.status != http.StatusOK || len(a.session.Leases) == 0 || !a.session.Leases[0].Held {
			s.mu.Lock()
			c.broken = a.body
			if now := time.Now(); now.Before(c.until) { // the answer reports the loss
				c.until = now
			}
			s.mu.Unlock()
			return last
		}
		seen, last = a.session.Version, time.Now()
		s.mu.Lock()
		if end := a.asked.Add(api.Duration(a.session.Leases[0].ValidFor)); last.Before(c.until) && end.After(c.until) {
			c.until = end
		}
		s.mu.Unlock()
	}
	return last
}

func (c *call) String() string {
	return fmt.Sprintf("request for %s (wait %v, repeated: %t) at %v, left at %v, answered after %v: %d %s; work until %v, gone at %v; %s", c.name, c.wait, c.repeats,
		c.came.Format(".05.000"), c.left.Format(".05.000"), c.over.Sub(c.came), c.got.status, c.got.problem.Detail, c.until.Format(".05.000"), c.gone.Format(".05.000"), c.broken)
}
