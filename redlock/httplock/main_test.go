package httplock_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/redlocktest"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg = 5 * time.Millisecond // each way of each message
	rtt = 2 * leg
	ttl = 10 * time.Second

	nodeTimeout = ttl / 100
)

// simulate runs test in a bubble with n simulated servers.
func simulate(t *testing.T, n int, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A test that waits in vain would otherwise renew its locks for ever.
		watchdog := time.AfterFunc(3*time.Hour, func() { panic(t.Name() + " does not end") })
		defer watchdog.Stop()
		w := sim.New(1, n)
		w.SetNet(sim.Fixed(leg))
		test(t, w)
	})
}

// open returns the Locker of a new process of the World, without the memory
// guard unless opts have it.
func open(t *testing.T, w *sim.World, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	c := w.NewClient(1)
	l, err := redlock.New(c.Nodes(), append([]redlock.LockerOption{redlocktest.Clock(c.Clock()), redlock.MemoryGuard(false)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// take acquires a lock that is free.
func take(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), name, opts...)
	require.NoError(t, err)
	return k
}

// header is what the tests' requests name their lock in.
const header = "Lock-Name"

func byHeader(r *http.Request) (string, error) { return r.Header.Get(header), nil }

// wrap returns h behind the middleware.
func wrap(t *testing.T, l *redlock.Locker, h http.HandlerFunc, opts ...httplock.Option) http.Handler {
	t.Helper()
	serialise, err := httplock.New(l, byHeader, opts...)
	require.NoError(t, err)
	return serialise(h)
}

// request returns one that names a lock.
func request(t *testing.T, name string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set(header, name)
	return r
}

// serve returns the answer to the request.
func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// mustNotRun is a handler for requests that do not get their lock.
func mustNotRun(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }
}

// took runs f and returns how long it took.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// holding returns how many servers hold key.
func holding(w *sim.World, key string) (n int) {
	for _, s := range w.Servers() {
		if _, ok := s.Keys()[key]; ok {
			n++
		}
	}
	return n
}
