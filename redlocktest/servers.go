package redlocktest

import (
	"sync"
	"testing"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// count is how many servers there are: as few as survive the loss of one.
const count = 3

// Servers are three servers in this process, which no other process sees. They are safe for concurrent
// use.
type Servers struct {
	t     testing.TB
	world *sim.World

	mu   sync.Mutex
	hung [count]int // outages of each server
}

// Start returns new servers, for the test t and what it starts.
func Start(t testing.TB) *Servers { return &Servers{t: t, world: sim.New(1, count)} }

// Locker returns a Locker over the servers, as a process of its own has it: two Lockers exclude each other.
// It has the defaults of redlock.New, but for the memory guard, because new servers have nothing to
// forget. It is closed with the test, which fails if the options do not go together.
func (s *Servers) Locker(opts ...redlock.LockerOption) *redlock.Locker {
	s.t.Helper()
	process := s.world.NewClient(1)
	opts = append([]redlock.LockerOption{timetest.Clock(process.Clock()), redlock.MemoryGuard(false)}, opts...)
	l, err := redlock.New(process.Nodes(), opts...)
	if err != nil {
		s.t.Fatalf("redlocktest: %v", err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l
}

// Hold has another process hold the lock of a key until release is called, or the test ends. The key is
// the lock's name, behind the Prefix of a Locker that has one. The test fails if the lock is held.
func (s *Servers) Hold(key string) (release func()) {
	s.t.Helper()
	lock, err := s.Locker().TryAcquire(s.t.Context(), key)
	if err != nil {
		s.t.Fatalf("redlocktest: %v", err)
	}
	return func() { lock.Release(s.t.Context()) }
}

// Lose deletes a key on all servers, as a server that evicts or an operator does: whoever holds the lock
// loses it. The holder is told within milliseconds if it has held the lock for 50 ms with a TTL of a
// second or more, and otherwise, as is a reader (redlock.Shared), by its next renewal, after a third
// of the TTL. The test fails if no server has the key.
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

// Outage has n of the three servers answer nothing until end is called, or the test ends: one is not
// felt, with two no lock can be taken, and held ones are lost at their deadline. Outages can overlap:
// each begins with the same server, and a server answers when all outages that it is in have ended.
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
