package httplock_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg = simtest.Leg
	rtt = simtest.RTT

	nodeTimeout = 500 * time.Millisecond
)

// What tests on simulated servers share (see package simtest), by short names.
var (
	simulate = simtest.Simulate
	take     = simtest.Take
	took     = simtest.Took
	holding  = simtest.Holding
)

// open returns the Locker of a new process of the World.
func open(t *testing.T, w *sim.World, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	return simtest.Locker(t, w.NewClient(1), opts...)
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
