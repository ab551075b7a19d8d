package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestPrefixIsAPartOfTheKey: the prefix has no other meaning. For any split of the key into prefix
// and name, each kind of lock, its tokens, its marks and its queue have the same keys on the
// servers. Lockers with other prefixes therefore exclude each other.
func TestPrefixIsAPartOfTheKey(t *testing.T) {
	const key = "app:job"
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		var want map[string]bool
		for i := range key {
			prefix, name := key[:i], key[i:]
			l, other := two(t, w, redlock.Prefix(prefix))
			seen := map[string]bool{}
			look := func() {
				time.Sleep(rtt)
				onAll(w, func(s *sim.Server) {
					for k := range s.Keys() {
						seen[k] = true
					}
				})
			}
			k := take(t, l, name, redlock.Fenced())
			require.NoError(t, k.RaiseMark(t.Context(), 1, time.Second))
			for _, opts := range [][]redlock.Option{nil, {redlock.Shared()}, {redlock.Permits(1)}} {
				isHeld(t, other, name, opts...)
			}
			waiting := make(chan *redlock.Lock)
			go func() { waiting <- waited(t, other, name, redlock.Fair()) }()
			time.Sleep(time.Second / 2)
			look()
			require.NoError(t, k.Release(t.Context()))
			require.NoError(t, (<-waiting).Release(t.Context()))
			reader := read(t, l, name)
			isHeld(t, other, name) // a writer's attempt, with an intent
			look()
			require.NoError(t, reader.Release(t.Context()))
			for range 3 {
				take(t, l, name, redlock.Permits(3), redlock.Fenced())
			}
			isHeld(t, other, name, redlock.Permits(3))
			in, err := other.InspectPermits(t.Context(), name, 3)
			require.NoError(t, err)
			for _, of := range in {
				_, _, isHeld := of.Holder()
				assert.True(t, isHeld)
			}
			look()
			require.NoError(t, l.Close())
			time.Sleep(time.Minute)
			if want == nil {
				want = seen
			}
			assert.Equal(t, want, seen, "prefix %q", prefix)
		}
		assert.Subset(t, want, map[string]bool{
			key: true, "redlock:fence:{app:job}": true, "redlock:once:{app:job}": true, "redlock:queue:{app:job}": true,
			"redlock:readers:{app:job}": true, "redlock:permit:2:{app:job}": true,
		})
	})
}
