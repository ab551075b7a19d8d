package fault

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

// long bounds what must happen in the end; only failing tests use it up.
const long = 20 * time.Second

func open(t *testing.T, kind fleet.Kind, opts fleet.Options, withRelays bool) *Nodes {
	t.Helper()
	need.Kind(t, kind)
	n, err := Open(t.Context(), kind, opts, withRelays)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func connect(t *testing.T, rawURL string) redis.Conn {
	t.Helper()
	c, err := redis.DialURL(rawURL, redis.DialReadTimeout(long))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// answers reports whether the node answers a PING in time.
func answers(rawURL string, limit time.Duration) bool {
	c, err := redis.DialURL(rawURL, redis.DialConnectTimeout(limit), redis.DialReadTimeout(limit))
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Do("PING")
	return err == nil
}

func TestFaultsAreFeltAndInterruptedOnesLeaveTheNodesWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   string
		relays bool
	}{
		{"kill 1 at 1ms for 30m", false}, {"kill 1 at 1ms for 30m", true},
		{"pause 1 at 1ms for 30m", false}, {"pause 1 at 1ms for 30m", true},
		{"slow 1 by 1m at 1ms for 30m", true},
	} {
		for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
			t.Run(fmt.Sprint(kind, " ", c.line, " relays ", c.relays), func(t *testing.T) {
				t.Parallel()
				n := open(t, kind, fleet.Options{Nodes: 2, Volatile: kind == fleet.Process}, c.relays)
				f := parsed(t, c.line)
				if err := n.Can(t.Context(), f); err != nil {
					t.Skip(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				played := make(chan error, 1)
				var done []record.Fault
				go func() {
					var err error
					done, err = f.Play(ctx, time.Now(), record.Load{Nodes: 2, Duration: time.Hour}, n)
					played <- err
				}()
				require.Eventually(t, func() bool { return !answers(n.URLs()[0], 50*ms) }, long, ms)
				assert.True(t, answers(n.URLs()[1], long), "the other node must not mind")
				stop()
				require.NoError(t, <-played)
				require.Len(t, done, 1)
				assert.Equal(t, []int{0}, done[0].Nodes)
				assert.Less(t, done[0].From, done[0].To)
				for _, u := range n.URLs() {
					assert.True(t, answers(u, long))
				}
			})
		}
	}
}

func TestNodesComeBackAsTheyAreConfigured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		kind fleet.Kind
		opts fleet.Options
		want any
	}{
		{"volatile", fleet.Process, fleet.Options{Nodes: 1, Volatile: true}, nil},
		{"durable", fleet.Process, fleet.Options{Nodes: 1}, []byte("value")},
		{"embedded", fleet.Embedded, fleet.Options{Nodes: 1}, []byte("value")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := open(t, c.kind, c.opts, false)
			_, err := connect(t, n.URLs()[0]).Do("SET", "key", "value")
			require.NoError(t, err)
			_, err = parsed(t, "kill 1 at 1ms for 1ms").Play(t.Context(), time.Now(), record.Load{Nodes: 1, Duration: time.Second}, n)
			require.NoError(t, err)
			got, err := connect(t, n.URLs()[0]).Do("GET", "key")
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestWhatNodesCannotDoIsSaidBeforehand(t *testing.T) {
	t.Parallel()
	embedded := open(t, fleet.Embedded, fleet.Options{Nodes: 2}, false)
	given := open(t, fleet.Addrs, fleet.Options{URLs: embedded.URLs()}, true)
	for _, line := range []string{"kill 1 at 1ms for 1ms", "pause 1 at 1ms for 1ms"} {
		require.NoError(t, embedded.Can(t.Context(), parsed(t, line)))
		require.ErrorIs(t, given.Can(t.Context(), parsed(t, line)), fleet.ErrUnsupported, line)
	}
	slow := parsed(t, "slow 1 by 1ms at 1ms for 1ms")
	require.NoError(t, given.Can(t.Context(), slow), "the network before given servers is ours")
	require.ErrorContains(t, embedded.Can(t.Context(), slow), "no relays")
}

func TestARelayTakesTheServersPlaceInTheURL(t *testing.T) {
	t.Parallel()
	n := open(t, fleet.Embedded, fleet.Options{Nodes: 1}, true)
	assert.NotEqual(t, n.Direct(), n.URLs())
	plain := open(t, fleet.Embedded, fleet.Options{Nodes: 1}, false)
	assert.Equal(t, plain.Direct(), plain.URLs(), "none where none is asked for")

	r, through, err := relayTo(strings.Replace(n.Direct()[0], "//", "//me:s%40cret@", 1) + "/3")
	require.NoError(t, err)
	defer r.Close()
	u, err := url.Parse(through)
	require.NoError(t, err)
	assert.Equal(t, "me:s%40cret", u.User.String())
	assert.Equal(t, "/3", u.Path)
	_, err = connect(t, "redis://"+u.Host).Do("PING")
	require.NoError(t, err)
}

func TestOnlyPlainTCPCanBeSlowedDown(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"rediss://me:secret@h:1": "slow is for redis:// alone",
		"unix://me:secret@/sock": "slow is for redis:// alone",
		"redis://me:secret@h:x":  "not of the form",
	} {
		_, _, err := relayTo(raw)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
}
