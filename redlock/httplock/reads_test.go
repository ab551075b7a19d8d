package httplock_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// TestReadsRunTogetherAndWritesAlone: each second request arrives while the first one runs.
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
					assert.Equal(t, c.want, serve(other, by(c.second)).Code)
				}, opts...)
				assert.Equal(t, http.StatusOK, serve(h, by(c.first)).Code)
			})
		})
	}
}
