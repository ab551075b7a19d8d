package subject

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/need"
)

// promises are the properties that package load relies on, for every library alike.
var promises = []struct {
	name string
	run  func(t *testing.T, s Spec, urls []string, name string)
}{
	{"a lock excludes another client until it is released", excludes},
	{"a released lock leaves no keys", leavesNothing},
	{"a lost lock is told at its release, and before it if the library renews", tellsLoss},
	{"a lock outlives the context that it was asked for with, for a TTL at most", outlivesContext},
	{"a lock is renewed if the subject says so", renews},
	{"many callers take turns", takeTurns},
}

func TestLibraries(t *testing.T) {
	f := start(t)
	for _, s := range libraries() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, p := range promises {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					p.run(t, s, f.URLs(), strings.ReplaceAll(s.Name+":"+p.name, " ", "-"))
				})
			}
		})
	}
}

// On miniredis, which lacks what some libraries use, they must work all the same.
func TestLibrariesOnEmbeddedServers(t *testing.T) {
	f := need.Servers(t, fleet.Embedded, fleet.Options{Nodes: 5})
	for _, s := range libraries() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			leavesNothing(t, s, f.URLs(), s.Name)
		})
	}
	t.Run("limit", func(t *testing.T) {
		t.Parallel()
		cycled(t, f.URLs(), 2, 1)
	})
}

// permits is how many callers hold a name at a time.
func permits(s Spec) int {
	if s.Name == "redquorum-permits" {
		return 4
	}
	return 1
}

func excludes(t *testing.T, s Spec, urls []string, name string) {
	a, b := open(t, s, urls), open(t, s, urls)
	lock := acquire(t, a, name)
	for range permits(s) - 1 {
		defer acquire(t, a, name).Release(context.Background())
	}
	began := time.Now()
	_, err := b.Acquire(within(t, brief), name)
	if time.Since(began) < ttl/2 || s.Renews { // else the lock may have expired, on a machine that is busy
		require.Error(t, err)
	}
	require.NoError(t, lock.Release(t.Context()))
	require.NoError(t, acquire(t, b, name).Release(t.Context()))
}

func leavesNothing(t *testing.T, s Spec, urls []string, name string) {
	c, err := s.Open(within(t, testLimit), urls, Config{TTL: ttl, Callers: 4})
	require.NoError(t, err)
	lock := acquire(t, c, name)
	require.NotEmpty(t, locks(t, urls, name))
	require.NoError(t, lock.Release(t.Context()))
	require.NoError(t, c.Close())
	if strings.HasSuffix(s.Name, "failfast") {
		// The deletion may overtake the SET of a straggler, on another connection; then the key
		// stays until it expires.
		require.Eventually(t, func() bool { return len(locks(t, urls, name)) == 0 }, testLimit, ttl/10)
		return
	}
	assert.Empty(t, locks(t, urls, name))
}

func tellsLoss(t *testing.T, s Spec, urls []string, name string) {
	c := open(t, s, urls)
	lock := acquire(t, c, name)
	for _, u := range urls {
		do(t, u, "DEL", name, "rueidislock:0:"+name)
		for slot := 1; slot < permits(s); slot++ {
			do(t, u, "DEL", keys.Slot(name, slot))
		}
	}
	if s.Renews {
		require.Eventually(t, func() bool { return lock.Until().IsZero() }, testLimit, ttl/100, "no loss was told")
	}
	require.Error(t, lock.Release(t.Context()))
}

func outlivesContext(t *testing.T, s Spec, urls []string, name string) {
	c := open(t, s, urls)
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	lock, err := c.Acquire(ctx, name)
	cancel()
	require.NoError(t, err)
	until, now := lock.Until(), time.Now()
	assert.True(t, until.After(now), "%v", until.Sub(now))
	assert.LessOrEqual(t, until.Sub(now), ttl)
	require.NoError(t, lock.Release(t.Context()))
}

func renews(t *testing.T, s Spec, urls []string, name string) {
	if !s.Renews {
		t.Skip("it does not")
	}
	c := open(t, s, urls)
	lock := acquire(t, c, name)
	first := lock.Until()
	require.Eventually(t, func() bool { return lock.Until().After(first) && time.Now().After(first) }, testLimit, ttl/10)
	require.NoError(t, lock.Release(t.Context()))
}

func takeTurns(t *testing.T, s Spec, urls []string, name string) {
	a, b := open(t, s, urls), open(t, s, urls)
	taken := 0 // guarded by the lock, for the race detector
	done := make(chan error)
	turns := func(c Client) {
		for range 2 {
			lock, err := c.Acquire(within(t, testLimit), name)
			if err == nil {
				taken++
				err = lock.Release(t.Context())
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}
	for range 2 {
		go turns(a)
		go turns(b)
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	assert.Equal(t, 8, taken)
}

func TestFind(t *testing.T) {
	t.Parallel()
	found, err := Find([]string{"bsm", "redquorum"})
	require.NoError(t, err)
	require.Len(t, found, 2)
	assert.Equal(t, "bsm", found[0].Name)
	assert.Equal(t, "redquorum", found[1].Name)
	_, err = Find([]string{"redsink"})
	require.ErrorContains(t, err, `"redsink"`)
	for _, s := range All() {
		require.ErrorContains(t, err, s.Name)
		assert.NotEmpty(t, s.Title, s.Name)
		assert.NotEmpty(t, s.Note, s.Name)
		assert.True(t, (s.Open == nil) != (s.Drive == nil), s.Name)
	}
}

func TestServersThatAreNotThere(t *testing.T) {
	t.Parallel()
	// No server listens on port 1, and the error must not show the password.
	urls := []string{"redis://somebody:secret@127.0.0.1:1"}
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cfg := within(t, testLimit), Config{TTL: ttl, Callers: 1}
			err := func() error {
				if s.Drive != nil {
					return s.Drive(ctx, urls, cfg, nil)
				}
				c, err := s.Open(ctx, urls, cfg)
				if err != nil {
					return err
				}
				_, err = c.Acquire(within(t, brief), "any")
				require.NoError(t, c.Close())
				return err
			}()
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}
