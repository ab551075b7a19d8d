package httplock_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// TestNewReportsInvalidArguments: New reports them before the first request, and sends nothing to
// the nodes.
func TestNewReportsInvalidArguments(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l := open(t, w)
		asked := 0
		w.Watch(func(sim.Step) { asked++ })
		for want, opts := range map[string][]httplock.Option{
			"httplock: an Option was zero: make it with one of the package's functions":        {{}},
			"httplock: option Wait(-1s): must not be negative: 0 tries once":                   {httplock.Wait(-time.Second)},
			"httplock: option Answer(nil): omit the option for the default":                    {httplock.Answer(nil)},
			"httplock: option OnLost(nil): omit the option":                                    {httplock.OnLost(nil)},
			"httplock: redlock: option Retries(-2): must not be negative, except Forever (-1)": {httplock.Lock(redlock.Retries(-2))},
			"httplock: redlock: option Shared: readers have no fencing token: omit Fenced, use a Locker without it for readers, or cancel Shared with Exclusive": {
				httplock.SharedReads(), httplock.Lock(redlock.Fenced()),
			},
		} {
			_, err := httplock.New(l, byHeader, opts...)
			assert.EqualError(t, err, want)
		}

		_, err := httplock.New(nil, byHeader)
		assert.EqualError(t, err, "httplock: the Locker is nil: make one with redlock.New")
		_, err = httplock.New(l, nil)
		assert.EqualError(t, err, "httplock: the key function is nil: pass one that returns the name of the lock that a request needs")

		serialise, err := httplock.New(l, byHeader, httplock.Wait(0), httplock.Lock())
		require.NoError(t, err)
		assert.PanicsWithValue(t, "httplock: the handler to wrap is nil", func() { serialise(nil) })
		assert.NotNil(t, serialise(http.NotFoundHandler()))

		require.NoError(t, l.Close())
		_, err = httplock.New(l, byHeader)
		assert.ErrorIs(t, err, redlock.ErrClosed)
		assert.Zero(t, asked)
	})
}

// TestNewAcceptsAnyLocker: the Locker's prefix may leave room for a single byte, and its locks may
// be shared or permits by default.
func TestNewAcceptsAnyLocker(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *sim.World) {
		for _, of := range []redlock.LockerOption{
			redlock.Prefix(""), redlock.Prefix("redlock:"), redlock.Prefix("redlock:epoc"), redlock.Prefix(string(make([]byte, 1023))),
			redlock.Permits(3), redlock.Shared(),
		} {
			_, err := httplock.New(open(t, w, of), byHeader, httplock.SharedReads())
			assert.NoError(t, err)
		}
	})
}
