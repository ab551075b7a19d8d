package redlockcertmagic_test

import (
	"testing"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	redlockcertmagic "github.com/redquorum/redquorum/contrib/certmagic"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	rtt  = sim.RTT
	ttl  = sim.TTL
	name = "issue_cert_example.com"
	key  = redlockcertmagic.Prefix + name
)

// simulate runs test in virtual time.
func simulate(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.Simulate(t, 5, test)
}

// open returns the storage of a new instance.
func open(t *testing.T, w *sim.World) *redlockcertmagic.Storage {
	t.Helper()
	l := sim.Locker(t, w.NewClient(1), redlock.TTL(ttl))
	s, err := redlockcertmagic.New(&certmagic.FileStorage{Path: t.TempDir()}, l)
	require.NoError(t, err)
	return s
}

// tryLock reports whether the instance got the lock.
func tryLock(t *testing.T, s *redlockcertmagic.Storage) bool {
	t.Helper()
	ok, err := s.TryLock(t.Context(), name)
	require.NoError(t, err)
	return ok
}

// forget makes all servers forget the lock.
func forget(w *sim.World) {
	for _, s := range w.Servers() {
		s.Del(key)
	}
}
