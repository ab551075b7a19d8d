package httplock_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// TestFailOpenPassesInAnOutageOnly: the handler can see that it has no lock. A request for a held
// lock is still refused.
func TestFailOpenPassesInAnOutageOnly(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		var why error
		hasLock := false
		h := wrap(t, open(t, w), func(_ http.ResponseWriter, r *http.Request) {
			why = httplock.Unlocked(r.Context())
			_, hasLock = httplock.FromContext(r.Context())
		}, httplock.FailOpen())
		assert.Equal(t, http.StatusOK, serve(h, request(t, "x")).Code)
		assert.NoError(t, why)
		assert.True(t, hasLock)

		lock := take(t, open(t, w), "x")
		assert.Equal(t, http.StatusLocked, serve(h, request(t, "x")).Code)
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		assert.Equal(t, http.StatusOK, serve(h, request(t, "y")).Code)
		assert.ErrorIs(t, why, redlock.ErrNoQuorum)
		assert.False(t, hasLock)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NotEqual(t, http.StatusOK, serve(h, request(t, "y").WithContext(ctx)).Code, "the client has left")
		for _, s := range w.Servers()[:3] {
			s.Resume()
			s.SetWrongType("z")
		}
		isProblem(t, serve(h, request(t, "z")), 500, broken, "")
		require.NoError(t, lock.Release(t.Context()))
	})
}
