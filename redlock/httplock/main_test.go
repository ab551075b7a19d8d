package httplock_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg = sim.OneWay
	rtt = sim.RTT

	nodeTimeout = 500 * time.Millisecond
)

// short names of helpers for tests on simulated servers (package sim)
var (
	simulate = sim.Simulate
	take     = sim.Take
	took     = sim.Took
	holding  = sim.Holding
)

// open returns the Locker of a new process of the World.
func open(t *testing.T, w *sim.World, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	return sim.Locker(t, w.NewClient(1), opts...)
}

// header is the header in which the tests' requests name their lock.
const header = "Lock-Name"

func byHeader(r *http.Request) (string, error) { return r.Header.Get(header), nil }

// wrap returns h wrapped in the middleware.
func wrap(t *testing.T, l *redlock.Locker, h http.HandlerFunc, opts ...httplock.Option) http.Handler {
	t.Helper()
	serialise, err := httplock.New(l, byHeader, opts...)
	require.NoError(t, err)
	return serialise(h)
}

// request returns a request that names a lock.
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
