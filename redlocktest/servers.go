package redlocktest

import (
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// count is the number of servers, the smallest that survives the loss of one.
const count = 3

// Servers are three servers in this process. No other process can reach them. They are safe for
// concurrent use.
type Servers struct {
	t     testing.TB
	world *sim.World

	mu   sync.Mutex
	hung [count]int // outages in progress, for each server
}

// Start returns new servers for the test t.
func Start(t testing.TB) *Servers { return &Servers{t: t, world: sim.New(1, count)} }

// Locker returns a Locker over the servers that acts as a separate process: two Lockers exclude
// each other. It has the defaults of redlock.New, except that the memory guard is off, because new
// servers have nothing to forget. It is closed at the end of the test. The test fails if the
// options are invalid.
func (s *Servers) Locker(opts ...redlock.LockerOption) *redlock.Locker {
	s.t.Helper()
	process := s.world.NewClient(1)
	opts = append([]redlock.LockerOption{sim.Clock(process.Clock()), redlock.MemoryGuard(false)}, opts...)
	l, err := redlock.New(process.Nodes(), opts...)
	if err != nil {
		s.t.Fatalf("redlocktest: %v", err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l
}

// Hold makes another process hold the lock of a key, until release is called or the test ends. The
// key is the name of the lock, after the Prefix of the Locker, if any. The test fails if the lock
// is held.
func (s *Servers) Hold(key string) (release func()) {
	s.t.Helper()
	lock, err := s.Locker(redlock.NodeTimeout(5*time.Second)).TryAcquire(s.t.Context(), key) // because the machine may be busy
	if err != nil {
		s.t.Fatalf("redlocktest: %v", err)
	}
	return func() { lock.Release(s.t.Context()) }
}

// Lose deletes a key on all servers, as an eviction or an operator would, so its holder loses the
// lock. The holder notices within milliseconds if it has held the lock for 50 ms and the TTL is a
// second or more. Otherwise it notices at its next renewal, after a third of the TTL; so does a
// reader (redlock.Shared). The test fails if no server has the key.
func (s *Servers) Lose(key string) {
	s.t.Helper()
	had := false
	for _, server := range s.world.Servers() {
		if _, ok := server.Keys()[key]; ok {
			had = true
			server.Del(key)
		}
	}
	if !had {
		s.t.Fatalf("redlocktest: no server has the key %q", key)
	}
}

// Outage stops the answers of n of the three servers, until end is called or the test ends. An
// outage of one has no effect. In an outage of two no lock can be acquired, and held locks are lost
// at their deadline. Outages can overlap: each begins with the same server, and a server answers
// again when all its outages have ended.
func (s *Servers) Outage(n int) (end func()) {
	s.t.Helper()
	servers := s.world.Servers()
	if n < 1 || n > len(servers) {
		s.t.Fatalf("redlocktest: an outage of %d servers: there are %d", n, len(servers))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, server := range servers[:n] {
		s.hung[i]++
		server.Hang()
	}
	end = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, server := range servers[:n] {
			if s.hung[i]--; s.hung[i] == 0 {
				server.Resume()
			}
		}
	})
	s.t.Cleanup(end)
	return end
}
