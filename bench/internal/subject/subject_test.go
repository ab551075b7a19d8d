package subject

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/testenv"
)

const (
	testLimit = time.Minute            // only failing tests reach it
	brief     = 200 * time.Millisecond // time for which a caller waits; shorter than a TTL
	ttl       = 9 * time.Second        // a busy machine may stand still for seconds
)

// TestMain checks that each Close ends all goroutines of its library. It builds the command before
// any test has a time limit; if that fails, Open reports it.
func TestMain(m *testing.M) {
	_, _ = built()
	_ = flag.Set("test.parallel", "16") // they wait most of the time
	goleak.VerifyTestMain(m)
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, s Spec, urls []string) Client {
	t.Helper()
	c, err := s.Open(within(t, testLimit), urls, Config{TTL: ttl, Callers: 4})
	require.NoError(t, err)
	return c
}

func acquire(t *testing.T, c Client, name string) Lock {
	t.Helper()
	l, err := c.Acquire(within(t, testLimit), name)
	require.NoError(t, err)
	return l
}

// release releases a lock. A busy machine may confirm this too late for the default timeout.
func release(t *testing.T, l Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		require.ErrorContains(t, err, "quorum")
	}
}

// do sends a command to one server.
func do(t testing.TB, url, command string, args ...any) any {
	t.Helper()
	c, err := redis.DialURL(url)
	require.NoError(t, err)
	defer c.Close()
	reply, err := c.Do(command, args...)
	require.NoError(t, err)
	return reply
}

// locks returns the keys on any server that end with name, and the keys of its permits.
func locks(t testing.TB, urls []string, name string) (found []string) {
	t.Helper()
	stem, tail := keys.Slots(name)
	for _, u := range urls {
		for _, pattern := range []string{"*" + name, stem + "*" + tail} {
			some, err := redis.Strings(do(t, u, "KEYS", pattern), nil)
			require.NoError(t, err)
			found = append(found, some...)
		}
	}
	return found
}

// permits returns the number of callers that hold a name at a time.
func permits(s Spec) int {
	if s.Name == "redquorum-permits" {
		return 4
	}
	return 1
}

// promises are the properties that package load relies on, for every library. The clients a and b
// compete.
var promises = map[string]func(t *testing.T, s Spec, urls []string, a, b Client, name string){
	"a lock excludes other clients until its release, which leaves no keys": func(t *testing.T, s Spec, urls []string, a, b Client, name string) {
		lock := acquire(t, a, name)
		for range permits(s) - 1 {
			defer acquire(t, a, name).Release(context.Background())
		}
		began := time.Now()
		_, err := b.Acquire(within(t, brief), name)
		if time.Since(began) < ttl/2 || s.Renews { // otherwise the lock may have expired on a busy machine
			require.Error(t, err)
		}
		release(t, lock)
		release(t, acquire(t, b, name))
		if permits(s) == 1 { // with fail-fast, a deletion may overtake the SET on a slow node; that key then expires
			require.Eventually(t, func() bool { return len(locks(t, urls, name)) == 0 }, testLimit, ttl/100)
		}
	},
	"a lost lock is reported at its release, and before it if the library renews": func(t *testing.T, s Spec, urls []string, a, _ Client, name string) {
		lock := acquire(t, a, name)
		for _, u := range urls {
			do(t, u, "DEL", name, "rueidislock:0:"+name)
			for slot := 1; slot < permits(s); slot++ {
				do(t, u, "DEL", keys.Slot(name, slot))
			}
		}
		if s.Renews {
			require.Eventually(t, func() bool { return lock.Until().IsZero() }, testLimit, ttl/100, "no loss was reported")
		}
		require.Error(t, lock.Release(t.Context()))
	},
	"a lock outlives the context of its acquisition, and is renewed if the subject says so": func(t *testing.T, s Spec, _ []string, a, _ Client, name string) {
		ctx, cancel := context.WithTimeout(t.Context(), testLimit)
		lock, err := a.Acquire(ctx, name)
		cancel()
		require.NoError(t, err)
		first, now := lock.Until(), time.Now()
		assert.True(t, first.After(now), "%v", first.Sub(now))
		assert.LessOrEqual(t, first.Sub(now), ttl)
		if s.Renews {
			require.Eventually(t, func() bool { return lock.Until().After(first) && time.Now().After(first) }, testLimit, ttl/100)
		}
		release(t, lock)
	},
}

func TestLibraries(t *testing.T) {
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 5, Volatile: true})
	small := testenv.Servers(t, fleet.Embedded, fleet.Options{Nodes: 5})
	for _, s := range All() {
		if s.Name == "limit" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			a, b := open(t, s, f.URLs()), open(t, s, f.URLs())
			t.Cleanup(func() {
				require.NoError(t, a.Close())
				require.NoError(t, b.Close())
			})
			for what, promise := range promises {
				t.Run(what, func(t *testing.T) {
					t.Parallel()
					promise(t, s, f.URLs(), a, b, strings.ReplaceAll(s.Name+":"+what, " ", "-"))
				})
			}
			// miniredis lacks commands that some libraries use.
			c := open(t, s, small.URLs())
			release(t, acquire(t, c, s.Name))
			require.NoError(t, c.Close())
		})
	}
}

// step runs some cycles of the limit.
func step(t *testing.T, urls []string, cycles int) error {
	t.Helper()
	c, err := limit().Open(t.Context(), urls, Config{TTL: testLimit, Callers: 4})
	require.NoError(t, err)
	for range cycles {
		began, acquired, released, err := c.(Stepper).Step()
		if err != nil {
			_ = c.Close()
			return err
		}
		assert.True(t, began.Before(acquired) && acquired.Before(released))
	}
	return c.Close()
}

func TestEveryServerDoesTheWorkOfTheLimit(t *testing.T) {
	t.Parallel()
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 5, Volatile: true})
	for _, u := range f.URLs() {
		do(t, u, "CONFIG", "RESETSTAT")
	}
	require.NoError(t, step(t, f.URLs(), 100))
	assert.Empty(t, locks(t, f.URLs(), "bench:limit:*"))
	for _, u := range f.URLs() {
		stats, err := redis.String(do(t, u, "INFO", "commandstats"), nil)
		require.NoError(t, err)
		assert.Contains(t, stats, "cmdstat_set:calls=400,")
		assert.Regexp(t, `cmdstat_(delex|delifeq|evalsha):calls=401,`, stats, "one asks whether the server has it")
	}
	require.NoError(t, f.Kill(t.Context(), 0))
	_, err := limit().Open(t.Context(), f.URLs(), Config{TTL: ttl, Callers: 1})
	assert.Error(t, err)
}

// TestLimitReleasesByTheServersOwnCommand: redquorum uses that command, so a limit without it would
// be too low.
func TestLimitReleasesByTheServersOwnCommand(t *testing.T) {
	t.Parallel()
	for _, native := range []string{"DELEX", "DELIFEQ", "EVALSHA"} {
		r := miniredis.RunT(t)
		released := 0
		r.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
			switch {
			case command == native && !slices.Contains(args, "bench:limit:"):
				released++
			case command == "DELEX" && native == "EVALSHA": // there, but forbidden
				p.WriteError("NOPERM User default has no permissions to run the 'delex' command")
				return true
			}
			if command == "DELEX" || command == "DELIFEQ" {
				if command == native {
					p.WriteInt(1)
				} else {
					p.WriteError("ERR unknown command")
				}
				return true
			}
			return false
		})
		err := step(t, []string{"redis://" + r.Addr()}, 1)
		assert.NoError(t, err, native)
		assert.Equal(t, 4, released, native)
		if native != "EVALSHA" { // nothing was deleted, so the next cycle is refused
			assert.ErrorContains(t, step(t, []string{"redis://" + r.Addr()}, 2), "a lock was refused")
		}
	}
}
