package httplock_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// TestReadsRunTogetherAndWritesAlone: each request is made while the one before runs.
func TestReadsRunTogetherAndWritesAlone(t *testing.T) {
	for _, c := range []struct {
		first, second string
		want          int
	}{
		{http.MethodGet, http.MethodGet, http.StatusOK},
		{http.MethodGet, http.MethodHead, http.StatusOK},
		{http.MethodHead, http.MethodGet, http.StatusOK},
		{http.MethodGet, http.MethodPut, http.StatusLocked},
		{http.MethodPost, http.MethodGet, http.StatusLocked},
		{http.MethodDelete, http.MethodPatch, http.StatusLocked},
	} {
		t.Run(c.first+" and "+c.second, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				by := func(method string) *http.Request {
					r := request(t, "x")
					r.Method = method
					return r
				}
				opts := []httplock.Option{httplock.SharedReads()}
				other := wrap(t, open(t, w), func(http.ResponseWriter, *http.Request) {}, opts...)
				h := wrap(t, open(t, w), func(http.ResponseWriter, *http.Request) {
					answer := httptest.NewRecorder()
					other.ServeHTTP(answer, by(c.second))
					assert.Equal(t, c.want, answer.Code)
				}, opts...)
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, by(c.first))
				assert.Equal(t, http.StatusOK, answer.Code)
			})
		})
	}
}

func TestSharedReadsWithFencedIsRefused(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := simtest.Locker(t, w.NewClient(1))
		_, err := httplock.New(l, byHeader, httplock.SharedReads(), httplock.Lock(redlock.Fenced()))
		require.ErrorContains(t, err, "leave out Fenced")
	})
}

// TestSharedReadsOnALockerOfPermits, and of readers.
func TestSharedReadsOnALockerOfPermits(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		for _, of := range []redlock.Option{redlock.Permits(3), redlock.Shared()} {
			l := simtest.Locker(t, w.NewClient(1), of)
			_, err := httplock.New(l, byHeader, httplock.SharedReads())
			require.NoError(t, err)
		}
	})
}
