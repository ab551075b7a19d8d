package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/redlocktest"
)

// inspect asks for the holders of a lock.
func (c *client) inspect(query string) (a api.Inspection) {
	c.t.Helper()
	got := c.ask("GET", "/v1/locks?name="+query, "")
	require.Equal(c.t, http.StatusOK, got.status, got.body)
	require.NoError(c.t, json.Unmarshal([]byte(got.body), &a))
	return a
}

// TestVersionDiffersWithTheHolders: the version also fits a JavaScript number, and is zero without
// a holder.
func TestVersionDiffersWithTheHolders(t *testing.T) {
	t.Parallel()
	seen := map[int64]bool{}
	for _, holders := range [][]string{nil, {""}, {"a"}, {"b"}, {"a", "b"}, {"ab"}, {"b", "a"}, {"", "ab"}, {"a", "", "b"}} {
		v := versionOf(holders)
		assert.False(t, seen[v], "%q", holders)
		assert.Equal(t, v, versionOf(holders))
		assert.Equal(t, holders == nil, v == 0)
		assert.Less(t, v, int64(1)<<53+1)
		assert.GreaterOrEqual(t, v, int64(0))
		seen[v] = true
	}
}

// TestInspectionHasTheToken: it has only the token of the current holder, and only if this server
// granted it.
func TestInspectionHasTheToken(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		assert.Zero(t, c.inspect("a").Version)
		for _, body := range []string{`{"name":"a","fenced":true}`, `{"names":["a","b"],"fenced":true}`} {
			taken := c.take(body).lease
			of := c.inspect("a")
			require.Len(t, of.Holders, 1)
			assert.Equal(t, max(taken.Fence, taken.Fences["a"]), of.Holders[0].Fence)
			assert.Positive(t, of.Holders[0].Fence)
			assert.Equal(t, of.Version, c.inspect("a").Version)
			c.release(taken.Lease)
		}
		permits := map[int]int64{}
		for range 2 {
			of := c.take(`{"name":"p","permits":3,"fenced":true}`).lease
			permits[of.Permits[0]] = of.Fence
		}
		of := c.inspect("p&permits=3")
		require.Len(t, of.Holders, 2)
		for _, h := range of.Holders {
			assert.Equal(t, permits[*h.Permit], h.Fence)
		}
		c.take(`{"name":"plain"}`)
		c.take(`{"name":"shared","kind":"shared"}`)
		servers.Hold("other")
		for _, name := range []string{"plain", "shared", "other"} {
			require.Len(t, c.inspect(name).Holders, 1, name)
			assert.Zero(t, c.inspect(name).Holders[0].Fence, name)
		}
		assert.Empty(t, s.table.holding("shared"))
	})
}

// TestTokenOfAFormerHolderIsNotShown: a lease that ended or began during an inspection proves
// nothing about it.
func TestTokenOfAFormerHolderIsNotShown(t *testing.T) {
	t.Parallel()
	a, b := &lease{}, &lease{}
	for _, c := range []struct{ before, after, want holdings }{
		{holdings{}, holdings{}, holdings{}},
		{holdings{0: a}, holdings{0: a}, holdings{0: a}},
		{holdings{0: a}, holdings{}, holdings{}},
		{holdings{}, holdings{0: a}, holdings{}},
		{holdings{0: a}, holdings{0: b}, holdings{}},
		{holdings{0: a, 1: b}, holdings{0: b, 1: b}, holdings{1: b}},
	} {
		assert.Equal(t, c.want, c.before.still(c.after))
	}
}

// TestWatchAnswersWhenTheHolderDiffers: it also answers for a free lock, and at the end of wait_ms.
func TestWatchAnswersWhenTheHolderDiffers(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":600000}`)
		first := c.take(`{"name":"a","fenced":true}`).lease
		now := c.inspect("a")
		watch := func(wait int) time.Duration {
			began := time.Now()
			now = c.inspect(fmt.Sprintf("%s&seen=%d&wait_ms=%d", now.Name, now.Version, wait))
			return time.Since(began)
		}
		// await watches until want returns true. The version also changes while a lease of this
		// server begins or ends, before the servers know it.
		await := func(want func() bool) {
			t.Helper()
			began := time.Now()
			for n := 0; n == 0 || !want(); n++ {
				require.Less(t, n, 10, "an answer for each inspection")
				watch(60_000)
			}
			assert.InDelta(t, 10, time.Since(began).Seconds(), 1)
		}
		before := now.Version
		assert.Equal(t, 3*time.Second, watch(3000))
		assert.Equal(t, before, now.Version)
		assert.Equal(t, first.Fence, now.Holders[0].Fence)

		time.AfterFunc(10*time.Second, func() { c.release(first.Lease) })
		await(func() bool { return now.Version == 0 && !now.Held })
		time.AfterFunc(10*time.Second, func() { servers.Hold("a") })
		await(func() bool { return now.Held })
		now.Version = before
		assert.Less(t, watch(60_000), time.Second, "it has seen another holder")

		next := c.take(`{"name":"b","fenced":true}`).lease // another caller of this server is next
		now = c.inspect("b")
		go c.ask("POST", "/v1/locks", `{"name":"b","fenced":true,"wait_ms":60000}`)
		time.AfterFunc(10*time.Second, func() { c.release(next.Lease) })
		await(func() bool { return now.Held && now.Holders[0].Fence > next.Fence })
		synctest.Wait()
		assert.Empty(t, s.watches.all)
		assert.Zero(t, s.table.usedBy("").waits)
	})
}

// TestOneInspectionIsForAllWatchers: no inspection in an answer is older than the request, because
// the client may have seen a later one.
func TestOneInspectionIsForAllWatchers(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		answers := make(chan api.Inspection, 100)
		for range 100 {
			go func() { answers <- c.inspect("a&seen=0&wait_ms=60000") }()
		}
		synctest.Wait()
		assert.Len(t, s.watches.all, 1)
		time.Sleep(watchEvery / 2)
		servers.Hold("a")
		seen := c.inspect("a").Version
		a := c.inspect(fmt.Sprintf("a&seen=%d&wait_ms=1000", seen))
		assert.Equal(t, seen, a.Version, "not the free lock of the inspection before")
		for range 100 {
			assert.Equal(t, seen, (<-answers).Version)
		}
	})
}

// TestMalformedWatchIsRefusedAtOnce, like the same request without a wait.
func TestMalformedWatchIsRefusedAtOnce(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		for _, query := range []string{"name=a&permits=0", "name=a&permits=1001", "name=redlock:primary", "name=" + strings.Repeat("x", 2000)} {
			began := time.Now()
			a := c.ask("GET", "/v1/locks?"+query+"&seen=0&wait_ms=3600000", "")
			assert.Equal(t, http.StatusBadRequest, a.status, query)
			assert.Equal(t, c.ask("GET", "/v1/locks?"+query, "").problem.Detail, a.problem.Detail)
			assert.Zero(t, time.Since(began), query)
		}
	})
}

// TestWatchEnds: a watch ends with the client, with the server, and with the right. Until then it
// counts in the share.
func TestWatchEnds(t *testing.T) {
	f := twoClients(t)
	f.change(0, func(c *rights.Client) { c.Share = map[string]int{rights.Waits: 1} })
	served(t, Config{Rights: f}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := as(t, s, "billing")
		const path = "/v1/locks?name=billing/a&seen=0&wait_ms=60000"
		answers := make(chan answer)
		ask := func(ctx context.Context) {
			go func() { answers <- c.askUnder(ctx, "GET", path, "") }()
			synctest.Wait()
		}
		ctx, leave := context.WithCancel(t.Context())
		ask(ctx)
		a := c.ask("GET", path, "")
		assert.Equal(t, http.StatusTooManyRequests, a.status)
		assert.Contains(t, a.problem.Detail, `"billing" has 1 waiting requests`)
		assert.Equal(t, http.StatusOK, c.ask("GET", "/v1/locks?name=billing/a", "").status, "it does not wait")
		leave()
		assert.Equal(t, http.StatusBadRequest, (<-answers).status)
		synctest.Wait()
		assert.Empty(t, s.watches.all)

		ask(t.Context())
		f.change(0, func(c *rights.Client) { c.Lock = []string{"billing/b"} })
		servers.Hold("billing/a")
		assert.Equal(t, http.StatusForbidden, (<-answers).status)
		f.change(0, func(c *rights.Client) { c.Lock = []string{"billing/**"} })

		c = as(t, s, "billing")
		go func() { answers <- c.ask("GET", "/v1/locks?name=billing/x&seen=0&wait_ms=60000", "") }()
		synctest.Wait()
		endNow(s)
		assert.Equal(t, api.KindEnding, (<-answers).problem.Kind)
		synctest.Wait()
		assert.Empty(t, s.watches.all)
	})
}
