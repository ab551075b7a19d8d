package serve

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// offices runs a test of candidates in virtual time.
func offices(t *testing.T, test func(t *testing.T, servers *redlocktest.Servers)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, redlocktest.Start(t)) })
}

// A candidate is a server that campaigns for an office, together with its program.
type candidate struct {
	*client
	server *Server
}

// campaign makes a server campaign for the office "billing" until the end of the test.
func campaign(t *testing.T, servers *redlocktest.Servers, id string) *candidate {
	s := New(servers.Locker(redlock.TTL(10*time.Second)), Config{TTL: 10 * time.Second, Office: "billing", Candidate: id})
	c := &candidate{&client{t: t, server: s}, s}
	t.Cleanup(func() {
		c.askUnder(context.Background(), "DELETE", "/leader?token="+text(c.token()), "") // lets a successor follow at once
		closeWithin(s, time.Second)
	})
	return c
}

func closeWithin(s *Server, grace time.Duration) (released, left int) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return s.Close(ctx)
}

// A told is an answer to a program about the office.
type told struct {
	leaderAnswer
	status  int
	at, end time.Time // time of the answer, and end of the promise in it
}

func (c *candidate) leader(query string) (a told) {
	c.t.Helper()
	got := c.ask("GET", "/leader"+query, "")
	require.NoError(c.t, json.Unmarshal([]byte(got.body), &a.leaderAnswer), got.body)
	a.status, a.at, a.end = got.status, time.Now(), got.asked.Add(api.Duration(a.ValidFor))
	assert.Equal(c.t, a.Leader, a.status == http.StatusOK)
	assert.Equal(c.t, a.Leader, a.ValidFor > 0)
	return a
}

// await returns the first answer with a token other than seen.
func (c *candidate) await(seen int64) (a told) {
	c.t.Helper()
	for a = c.leader("?wait_ms=60000&seen=" + text(seen)); a.Token == seen; a = c.leader("?wait_ms=60000&seen=" + text(seen)) {
	}
	return a
}

// token returns the token of the term, even if it is being released.
func (c *candidate) token() int64 {
	o := c.server.office
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leading == nil {
		return 0
	}
	return o.leading.Token()
}

// probed returns the status that the kubelet and load balancers get.
func (c *candidate) probed(path string) int {
	c.t.Helper()
	w := httptest.NewRecorder()
	c.server.Probes().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != http.StatusNotFound {
		assert.Equal(c.t, http.StatusText(w.Code)+"\n", w.Body.String(), "nothing else is told")
	}
	return w.Code
}

// TestWaitingProgramLearnsItsTerm: it gets a later end before the end that it knows, and notice
// of the loss of the term. The next term has a greater token.
func TestWaitingProgramLearnsItsTerm(t *testing.T) {
	offices(t, func(t *testing.T, servers *redlocktest.Servers) {
		a := campaign(t, servers, "a")
		first := a.await(0)
		for last := first; time.Since(first.end) < time.Minute; {
			next := a.leader("?wait_ms=60000&seen=" + text(first.Token))
			require.True(t, time.Now().Before(last.end))
			require.True(t, next.Leader)
			last = next
		}
		time.AfterFunc(time.Second, func() { servers.Lose("billing") })
		began := time.Now()
		lost := a.leader("?wait_ms=3000&seen=" + text(first.Token))
		assert.Less(t, time.Since(began), 2*time.Second)
		assert.Equal(t, leaderAnswer{ID: "a"}, lost.leaderAnswer)
		assert.Greater(t, a.await(0).Token, first.Token)
	})
}

// TestOneProgramLeadsAtATime: the promise to a program has ended before another program gets one,
// regardless of failures of servers, ends of daemons, and the duration of its requests.
func TestOneProgramLeadsAtATime(t *testing.T) {
	t.Parallel()
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			servers := redlocktest.Start(t)
			var mu sync.Mutex
			var all []told
			over := time.Now().Add(4 * time.Minute)
			if testing.Short() {
				over = time.Now().Add(2 * time.Minute)
			}
			var programs sync.WaitGroup
			for id := range uint64(3) {
				programs.Go(func() {
					lot := rand.New(rand.NewPCG(seed, id))
					upTo := func(most time.Duration) time.Duration { return time.Duration(lot.Int64N(int64(most))) }
					for time.Now().Before(over) {
						c := campaign(t, servers, text(int64(id)))
						for ends := time.Now().Add(upTo(time.Minute)); time.Now().Before(ends); time.Sleep(upTo(6 * time.Second)) {
							now := c.leader("")
							later := c.leader("?wait_ms=" + text(upTo(5*time.Second).Milliseconds()) + "&seen=" + text(now.Token))
							mu.Lock()
							all = append(all, now, later)
							mu.Unlock()
						}
						closeWithin(c.server, upTo(10*time.Second))
					}
				})
			}
			lot := rand.New(rand.NewPCG(seed, 99))
			for time.Now().Before(over) {
				time.Sleep(time.Duration(lot.Int64N(int64(30 * time.Second))))
				end := servers.Outage(2)
				time.Sleep(time.Duration(lot.Int64N(int64(15 * time.Second))))
				end()
			}
			programs.Wait()
			tokens := map[int64]bool{}
			all = slices.DeleteFunc(all, func(a told) bool { return !a.Leader })
			for _, a := range all {
				tokens[a.Token] = true
				for _, b := range all {
					if a.Token < b.Token {
						require.False(t, a.end.After(b.at), "term %d was told until %v behind the beginning of %d", a.Token, a.end.Sub(b.at), b.Token)
					}
				}
			}
			assert.Greater(t, len(tokens), 2, "terms")
		})
	}
}

// TestEndOfTheServerEndsTheTerm: no program gets another promise. The successor follows
// when the last promise has ended, or at once if the program reports the end of its work.
func TestEndOfTheServerEndsTheTerm(t *testing.T) {
	t.Parallel()
	const soon = 500 * time.Millisecond
	for name, c := range map[string]struct {
		told, resigns bool
		grace         time.Duration
		least, most   time.Duration
		left          int
	}{
		"no program was told":          {grace: 10 * time.Second, most: soon},
		"one has ended its work":       {told: true, resigns: true, grace: 10 * time.Second, most: soon},
		"one may still work":           {told: true, grace: 10 * time.Second, least: 5 * time.Second, most: 9*time.Second + soon},
		"for longer than is left":      {told: true, grace: time.Second, least: 5 * time.Second, most: 11 * time.Second, left: 1},
		"no program was told, no time": {grace: 0, most: soon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				servers := redlocktest.Start(t)
				a := campaign(t, servers, "a")
				time.Sleep(time.Second)
				require.Equal(t, http.StatusOK, a.probed("/leader"))
				b := campaign(t, servers, "b")
				time.Sleep(3 * time.Second)
				var last told
				if c.told {
					last = a.leader("")
				}
				waits := make(chan told, 1)
				go func() { waits <- b.await(0) }()
				began := time.Now()
				ended := make(chan int, 1)
				go func() {
					_, left := closeWithin(a.server, c.grace)
					ended <- left
				}()
				synctest.Wait()
				assert.Equal(t, http.StatusServiceUnavailable, a.probed("/leader"))
				assert.Equal(t, http.StatusServiceUnavailable, a.probed("/readyz"))
				assert.Equal(t, http.StatusOK, a.probed("/healthz"))
				if c.resigns {
					assert.Equal(t, http.StatusNoContent, a.ask("DELETE", "/leader?token="+text(last.Token), "").status)
				}
				assert.Equal(t, leaderAnswer{ID: "a"}, a.leader("").leaderAnswer)
				next := <-waits
				assert.True(t, next.Leader)
				assert.False(t, last.end.After(time.Now()) && !c.resigns)
				assert.LessOrEqual(t, time.Since(began), c.most)
				assert.GreaterOrEqual(t, time.Since(began), c.least)
				assert.Equal(t, c.left, <-ended)
			})
		})
	}
}

// TestProgramResignsInItsOwnTerm only.
func TestProgramResignsInItsOwnTerm(t *testing.T) {
	offices(t, func(t *testing.T, servers *redlocktest.Servers) {
		a := campaign(t, servers, "a")
		first := a.await(0)
		assert.Equal(t, "a", first.ID)
		assert.Positive(t, first.Token)
		b := campaign(t, servers, "b")
		time.Sleep(time.Minute)
		assert.Equal(t, leaderAnswer{ID: "b"}, b.leader("").leaderAnswer)
		assert.Equal(t, http.StatusServiceUnavailable, b.probed("/leader"))
		assert.Equal(t, api.KindLost, b.ask("DELETE", "/leader?token="+text(first.Token), "").problem.Kind)
		assert.Equal(t, api.KindLost, a.ask("DELETE", "/leader?token="+text(first.Token-1), "").problem.Kind)
		assert.Equal(t, api.KindBad, a.ask("DELETE", "/leader", "").problem.Kind)
		assert.True(t, a.leader("").Leader)

		began := time.Now()
		assert.Equal(t, http.StatusNoContent, a.ask("DELETE", "/leader?token="+text(first.Token), "").status)
		assert.False(t, a.leader("").Leader)
		assert.Equal(t, api.KindLost, a.ask("DELETE", "/leader?token="+text(first.Token), "").problem.Kind)
		assert.Greater(t, b.await(0).Token, first.Token)
		assert.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
	})
}

// TestRestartReleasesTheOffice: the exception is a program that may still believe that it leads.
func TestRestartReleasesTheOffice(t *testing.T) {
	offices(t, func(t *testing.T, servers *redlocktest.Servers) {
		for _, told := range []bool{false, true} {
			a := campaign(t, servers, "a")
			time.Sleep(time.Second)
			require.Equal(t, http.StatusOK, a.probed("/leader"))
			if told {
				require.True(t, a.leader("").Leader)
			}
			a.server.Leave()
			assert.Equal(t, !told, free(t, servers, "billing"))
		}
		time.Sleep(time.Minute) // until the office has expired
		a := campaign(t, servers, "a")
		time.Sleep(time.Second)
		require.Equal(t, http.StatusOK, a.probed("/leader"))
		servers.Outage(2)
		began := time.Now()
		a.server.Leave()
		assert.Positive(t, time.Since(began), "it waits for the release to be confirmed")
		assert.Less(t, time.Since(began), 2*time.Second)
	})
}

// TestReadinessIsCheckedOnceASecond: it sends requests to the servers.
func TestReadinessIsCheckedOnceASecond(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := &candidate{&client{t: t, server: s}, s}
		servers.Outage(1)
		require.Equal(t, http.StatusOK, c.probed("/readyz"))
		end := servers.Outage(2)
		assert.Equal(t, http.StatusOK, c.probed("/readyz"))
		time.Sleep(time.Second)
		assert.Equal(t, http.StatusServiceUnavailable, c.probed("/readyz"))
		began := time.Now()
		assert.Equal(t, http.StatusServiceUnavailable, c.ask("GET", "/readyz", "").status)
		assert.Zero(t, time.Since(began), "no server was asked")
		assert.Equal(t, http.StatusOK, c.probed("/healthz"))
		end()
		time.Sleep(time.Second)
		assert.JSONEq(t, `{"ready":true}`, c.ask("GET", "/readyz", "").body)
		assert.Equal(t, http.StatusNotFound, c.probed("/leader"))
		assert.Equal(t, http.StatusNotFound, c.ask("GET", "/leader", "").status)
		assert.Equal(t, http.StatusNotFound, c.ask("DELETE", "/leader?token=1", "").status)
	})
}

// TestUnavailableOfficeIsReported: it is logged once, and tried again.
func TestUnavailableOfficeIsReported(t *testing.T) {
	offices(t, func(t *testing.T, servers *redlocktest.Servers) {
		told := make(chan string, 100)
		s := New(servers.Locker(), Config{TTL: 10 * time.Second, Office: "billing", Candidate: strings.Repeat("a", 200), Log: func(text string) { told <- text }})
		time.Sleep(time.Minute)
		require.Len(t, told, 1)
		require.Contains(t, <-told, "Owner")
		_, left := closeWithin(s, time.Second)
		assert.Zero(t, left)
	})
}
