package fault

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/servers"
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

// awaitProbe asks the node until a probe is as it should be.
func awaitProbe(t *testing.T, rawURL string, interval time.Duration, is func(record.Probe) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*interval)
		defer cancel()
		return slices.ContainsFunc(servers.Probe(ctx, []string{rawURL}, time.Now(), interval)[0], is)
	}, long, time.Millisecond)
}

func unanswered(p record.Probe) bool { return p.Took < 0 }

func TestFaultsAreFeltAndInterruptedOnesLeaveTheNodesWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line     string
		relays   bool
		interval time.Duration
		felt     func(record.Probe) bool
	}{
		{"kill nodes 2 at 1ms for 30m", false, 20 * ms, unanswered},
		{"kill nodes 2 at 1ms for 30m", true, 20 * ms, unanswered},
		{"pause nodes 2 at 1ms for 30m", false, 20 * ms, unanswered},
		{"pause nodes 2 at 1ms for 30m", true, 20 * ms, unanswered},
		{"slow nodes 2 by 50ms at 1ms for 30m", true, 200 * ms, func(p record.Probe) bool { return p.Took >= 100*ms }},
		{"slow nodes 2 by 1m at 1ms for 30m", true, 20 * ms, unanswered},
	} {
		for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
			t.Run(fmt.Sprint(kind, " ", c.line, " relays ", c.relays), func(t *testing.T) {
				t.Parallel()
				n := open(t, kind, fleet.Options{Nodes: 2, Volatile: kind == fleet.Process}, c.relays)
				plan := planned(t, 2, time.Hour, c.line)
				if err := plan.Check(t.Context(), n); err != nil {
					t.Skip(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				start := time.Now()
				played := make(chan error, 1)
				var done []record.Fault
				go func() {
					var err error
					done, err = plan.Play(ctx, start, n)
					played <- err
				}()
				awaitProbe(t, n.URLs()[1], c.interval, c.felt)
				_, err := connect(t, n.URLs()[0]).Do("PING")
				require.NoError(t, err, "the other node must not mind")
				stop()
				require.NoError(t, <-played)
				require.Len(t, done, 1)
				assert.Equal(t, []int{1}, done[0].Nodes)
				assert.Less(t, done[0].From, done[0].To)
				for _, u := range n.URLs() {
					_, err := connect(t, u).Do("PING")
					require.NoError(t, err)
				}
			})
		}
	}
}

func TestFaultsThatEndLeaveTheNodesWhole(t *testing.T) {
	t.Parallel()
	n := open(t, fleet.Embedded, fleet.Options{Nodes: 4}, true)
	plan := planned(t, 4, time.Minute, "kill 1 at 1ms for 20ms", "pause nodes 2,4 at 2ms for 20ms", "slow nodes 3 by 1m at 3ms for 20ms",
		"pause nodes 1 at 21ms for 1ms")
	for range 2 { // trials
		done, err := plan.Play(t.Context(), time.Now(), n)
		require.NoError(t, err)
		require.Len(t, done, 4)
		for _, u := range n.URLs() {
			_, err := connect(t, u).Do("PING")
			require.NoError(t, err)
		}
	}
}

func TestNodesComeBackAsTheyAreConfigured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		kind fleet.Kind
		opts fleet.Options
		word string
		want any
	}{
		{"volatile", fleet.Process, fleet.Options{Nodes: 1, Volatile: true}, "", nil},
		{"none of several", fleet.Process, fleet.Options{Nodes: 1, Persistence: []fleet.Persistence{fleet.None}}, "", nil},
		{"durable", fleet.Process, fleet.Options{Nodes: 1}, "", []byte("value")},
		{"durable", fleet.Process, fleet.Options{Nodes: 1}, " remembering", []byte("value")},
		{"embedded", fleet.Embedded, fleet.Options{Nodes: 1}, "", []byte("value")},
	} {
		t.Run(c.name+c.word, func(t *testing.T) {
			t.Parallel()
			n := open(t, c.kind, c.opts, false)
			_, err := connect(t, n.URLs()[0]).Do("SET", "key", "value")
			require.NoError(t, err)
			_, err = planned(t, 1, time.Second, "kill 1 at 1ms for 1ms"+c.word).Play(t.Context(), time.Now(), n)
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
		require.NoError(t, planned(t, 2, time.Second, line).Check(t.Context(), embedded))
		require.ErrorIs(t, planned(t, 2, time.Second, line).Check(t.Context(), given), fleet.ErrUnsupported, line)
	}
	slow := planned(t, 2, time.Second, "slow 1 by 1ms at 1ms for 1ms")
	require.NoError(t, slow.Check(t.Context(), given), "the network before given servers is ours")
	require.ErrorContains(t, slow.Check(t.Context(), embedded), "no relays")

	remembering := planned(t, 2, time.Second, "kill 1 at 1ms for 1ms remembering")
	require.NoError(t, remembering.Check(t.Context(), embedded))
	volatile := open(t, fleet.Process, fleet.Options{Nodes: 2, Volatile: true}, false)
	err := remembering.Check(t.Context(), volatile)
	require.ErrorIs(t, err, fleet.ErrUnsupported)
	require.ErrorContains(t, err, "let nodes be durable")
}

// An elected is a fleet that elects a leader.
type elected struct {
	fleet.Fleet
	leader int
	err    error
}

func (e elected) URLs() []string                      { return make([]string, 5) }
func (e elected) Leader(context.Context) (int, error) { return e.leader, e.err }

func TestRolesOfNodes(t *testing.T) {
	t.Parallel()
	for leader, follower := range map[int]int{0: 1, 3: 4, 4: 0} {
		n := Of(elected{leader: leader})
		for role, want := range map[string]int{Leader: leader, Follower: follower} {
			got, err := n.Find(t.Context(), role)
			require.NoError(t, err)
			assert.Equal(t, want, got, role)
		}
	}
	_, err := Of(elected{err: context.DeadlineExceeded}).Find(t.Context(), Follower)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	n := open(t, fleet.Embedded, fleet.Options{Nodes: 2}, false)
	for role, want := range map[string]int{Leader: 0, Follower: 1} {
		got, err := n.Find(t.Context(), role)
		require.NoError(t, err)
		assert.Equal(t, want, got, "without an election the first counts as the leader")
	}
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
		"rediss://me:secret@h:1": "slow does not work with rediss://",
		"unix://me:secret@/sock": "slow does not work with unix://",
		"redis://me:secret@h:x":  "cannot be parsed",
	} {
		_, _, err := relayTo(raw)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
}
