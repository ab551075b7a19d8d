package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlocktest"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// resumed returns the successor of a server, which must have these numbers of kept and lost locks.
func resumed(t *testing.T, servers *redlocktest.Servers, c Config, left State, kept, lost int) *Server {
	t.Helper()
	s := New(servers.Locker(), c)
	t.Cleanup(func() { endNow(s) })
	file, err := json.Marshal(left)
	require.NoError(t, err)
	var read State
	require.NoError(t, json.Unmarshal(file, &read))
	had, missed := s.Resume(t.Context(), read)
	assert.Equal(t, [2]int{kept, lost}, [2]int{had, missed})
	return s
}

// TestNextServerKeepsPromisesAndLocks: the next server keeps the owners of sessions and the promises to clients,
// even if it ends at once, and adopts only the locks that it has room for.
func TestNextServerKeepsPromisesAndLocks(t *testing.T) {
	of := Config{Rights: twoClients(t)}
	served(t, of, func(t *testing.T, servers *redlocktest.Servers, first *Server) {
		c := as(t, first, "billing")
		lone := c.take(`{"name":"billing/a"}`)
		c.take(`{"name":"billing/b"}`)
		left := first.Leave()
		require.NoError(t, left.Check())

		small := resumed(t, servers, Config{Limits: Limits{Total: 1}}, left, 1, 1)
		released, expiring := endNow(small)
		assert.Equal(t, []int{0, 1}, []int{released, expiring}, "its client was told that it has it")

		next := resumed(t, servers, of, left, 2, 0)
		path := "/v1/locks/" + lone.lease.Lease
		assert.Equal(t, http.StatusNotFound, as(t, next, "payroll").ask("DELETE", path, "").status)
		assert.Equal(t, http.StatusNoContent, as(t, next, "billing").ask("DELETE", path, "").status)
		assert.Nil(t, next.table.sessions[lone.lease.Session], "it ended with its lock")
	})
}

// TestRestartInAnOutageRetriesEachLock: the next server tries for each lock until its TTL has passed. If it ends
// in the meantime, it leaves the other locks to its own successor.
func TestRestartInAnOutageRetriesEachLock(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, first *Server) {
		c := open(t, first, `{"ttl_ms":60000}`)
		id := c.take(`{"name":"a"}`).lease.Lease
		of := first.table.sessions[c.session] // like a request in progress
		left := first.Leave()
		assert.Equal(t, api.ErrEnding, of.end(), "it is another's now")

		end := servers.Outage(2)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, stop)
		next := New(servers.Locker(), Config{})
		kept, lost := next.Resume(ctx, left)
		assert.Equal(t, []int{0, 1}, []int{kept, lost})
		left = next.Leave()

		time.AfterFunc(2*time.Second, end)
		last := resumed(t, servers, Config{}, left, 1, 0)
		c.server = last
		assert.True(t, c.ask("GET", "/v1/locks/"+id, "").lease.Held)

		left = last.Leave()
		servers.Outage(2)
		began := time.Now()
		resumed(t, servers, Config{}, left, 0, 1)
		assert.InDelta(t, 10*time.Second, time.Since(began), float64(5*time.Second), "the TTL, and what a try takes")
	})
}

// TestHandedOverSessionGetsNoAnswer: the old server sends no answer. The next server would not know
// about later answers, and clients must not be notified of an end. A client whose connection is cut
// repeats its request.
func TestHandedOverSessionGetsNoAnswer(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, first *Server) {
		c := open(t, first, "")
		path := "/v1/locks/" + c.take(`{"name":"a"}`).lease.Lease
		seen := text(c.ask("GET", "/v1/session", "").session.Version)
		defer servers.Hold("held")()
		other := open(t, first, "")
		last := c.ask("GET", "/v1/session", "")
		under := make(chan bool, 3)
		ask := func(c *client, method, path, body string) { under <- c.isCut(method, path, body) }
		stream := *c
		stream.headers = map[string]string{"Accept": "text/event-stream"}
		go ask(c, "GET", "/v1/session?wait_ms=60000&seen="+seen, "")
		go ask(&stream, "GET", "/v1/session", "")
		go ask(other, "POST", "/v1/locks", `{"name":"held","wait_ms":60000}`)
		synctest.Wait()

		left := first.Leave()
		for range cap(under) {
			assert.True(t, <-under, "a request that was under way")
		}
		for _, request := range []string{"GET /v1/session", "DELETE /v1/session", "GET " + path, "POST " + path + "/extend", "DELETE " + path, "POST /v1/sessions"} {
			method, path, _ := strings.Cut(request, " ")
			assert.True(t, c.isCut(method, path, ""), request)
		}
		assert.True(t, c.isCut("POST", "/v1/locks", `{"name":"b"}`))
		assert.Equal(t, http.StatusOK, c.ask("GET", "/healthz", "").status)
		for _, l := range first.table.sessions[c.session].leases { // like the end of a request for it
			_, err := l.locked(&request{since: time.Now()})
			assert.ErrorIs(t, err, api.ErrEnding)
		}

		next := resumed(t, servers, Config{}, left, 1, 0)
		of := next.table.sessions[c.session]
		require.Len(t, of.leases, 1)
		for _, l := range of.leases {
			assert.False(t, l.validUntil.Before(last.asked.Add(api.Duration(last.session.Leases[0].ValidFor))), "what was told is known")
		}
		c.server = next
		began := time.Now()
		assert.False(t, c.ask("GET", "/v1/session?wait_ms=60000&seen="+seen, "").session.Ending)
		assert.Zero(t, time.Since(began), "a client that was cut off is told at once")
		assert.Equal(t, http.StatusNoContent, c.ask("DELETE", path, "").status)
	})
}

// TestResumingServerRefusesRequests: it refuses requests about locks, and is not ready, because it
// does not know all locks yet. A client with a session waits.
func TestResumingServerRefusesRequests(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, first *Server) {
		c := open(t, first, `{"ttl_ms":60000}`)
		id := c.take(`{"name":"a"}`).lease.Lease
		left := first.Leave()
		next := New(servers.Locker(), Config{Resumes: true})
		defer endNow(next)
		c.server = next
		end := servers.Outage(2)
		time.AfterFunc(3*time.Second, end)
		resumed := make(chan struct{})
		go func() {
			defer close(resumed)
			next.Resume(t.Context(), left)
		}()
		var early answer
		go func() { early = c.ask("GET", "/v1/session", "") }()
		for range 2 {
			synctest.Wait()
			refused := (&client{t: t, server: next}).ask("POST", "/v1/sessions", "")
			assert.Equal(t, http.StatusServiceUnavailable, refused.status)
			assert.Equal(t, api.KindNoQuorum, refused.problem.Kind)
			assert.Equal(t, "1", refused.headers.Get("Retry-After"))
			assert.Equal(t, http.StatusServiceUnavailable, c.ask("GET", "/readyz", "").status)
			assert.Equal(t, http.StatusOK, c.ask("GET", "/healthz", "").status)
			time.Sleep(time.Second)
		}
		<-resumed
		synctest.Wait()
		if assert.Len(t, early.session.Leases, 1, "a client that has a session is told what it has") {
			assert.True(t, early.session.Leases[0].Held)
		}
		assert.True(t, c.ask("GET", "/v1/locks/"+id, "").lease.Held)
		assert.Equal(t, http.StatusOK, c.ask("GET", "/readyz", "").status)
		c.release(id)
	})
}

// TestInterruptedResumeReportsNoLock: if the server has not adopted a lock, the next server may
// adopt it.
func TestInterruptedResumeReportsNoLock(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, first *Server) {
		c := open(t, first, `{"ttl_ms":60000}`)
		c.take(`{"name":"a"}`)
		left := first.Leave()
		next := New(servers.Locker(), Config{Resumes: true})
		defer endNow(next)
		c.server = next
		servers.Outage(2)
		isCut := make(chan bool)
		go func() { isCut <- c.isCut("GET", "/v1/session", "") }()
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, stop)
		next.Resume(ctx, left)
		synctest.Wait()
		left = next.Leave()
		assert.True(t, <-isCut)
		assert.NotEmpty(t, left.Sessions[0].Leases[0].Value)
	})
}

// TestResumeOfManyLocksEnds: it ends with the server, or with the TTL of the locks. Clients and
// supervisors wait for it, and in an outage an attempt for one lock takes the node timeout.
func TestResumeOfManyLocksEnds(t *testing.T) {
	for after, most := range map[time.Duration]time.Duration{time.Second: 3 * time.Second, time.Hour: 12 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, first *Server) {
				c := open(t, first, `{"ttl_ms":60000}`)
				for i := range 500 {
					c.take(`{"name":"` + text(int64(i)) + `"}`)
				}
				left := first.Leave()
				next := New(servers.Locker(), Config{Resumes: true})
				defer endNow(next)
				servers.Outage(2)
				ctx, stop := context.WithTimeout(t.Context(), after)
				defer stop()
				began := time.Now()
				next.Resume(ctx, left)
				assert.Less(t, time.Since(began), most)
				for _, l := range next.table.leases {
					assert.NotContains(t, l.lost, "redlock:")
				}
				for _, l := range next.Leave().Sessions[0].Leases {
					assert.Equal(t, ctx.Err() == nil, l.Value == "", "the next server may adopt it")
				}
			})
		})
	}
}

// TestServerWithoutAStateStays: it notifies its clients of its end. It releases their
// locks when they have released them, or when the last promise to them has ended.
func TestServerWithoutAStateStays(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		path := "/v1/locks/" + c.take(`{"name":"a"}`).lease.Lease
		c.take(`{"name":"b"}`)
		s.Leave()
		s.Stay()
		var released, left int
		var end sync.WaitGroup
		end.Go(func() { released, left = closeWithin(s, 20*time.Second) })
		defer end.Wait()
		synctest.Wait()
		assert.True(t, c.ask("GET", "/v1/session", "").session.Ending)
		c.release(strings.TrimPrefix(path, "/v1/locks/"))
		assert.True(t, free(t, servers, "a"))
		assert.False(t, free(t, servers, "b"))
		c.ask("DELETE", "/v1/session", "")
		end.Wait()
		assert.Equal(t, []int{0, 0}, []int{released, left})
		assert.True(t, free(t, servers, "b"))
	})
}

// TestSessionExpiresAfterTheServerHasStayed: its timer may have expired while the state was written.
func TestSessionExpiresAfterTheServerHasStayed(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		open(t, s, `{"ttl_ms":10000}`).take(`{"name":"dead"}`)
		c := open(t, s, `{"ttl_ms":10000}`)
		c.take(`{"name":"a"}`)
		s.Leave()
		time.Sleep(11 * time.Second) // like a disk that hangs
		s.Stay()
		var end sync.WaitGroup
		end.Go(func() { closeWithin(s, time.Hour) })
		defer end.Wait()
		for range 2 {
			time.Sleep(7 * time.Second)
			assert.Len(t, c.ask("GET", "/v1/session", "").session.Leases, 1, "its client asks again")
		}
		assert.True(t, free(t, servers, "dead"))
		c.ask("DELETE", "/v1/session", "")
	})
}

// isCut sends a request, and reports whether the connection was cut without an answer.
func (c *client) isCut(method, path, body string) (cut bool) {
	defer func() {
		if p := recover(); p != nil {
			cut = p == http.ErrAbortHandler
		}
	}()
	c.ask(method, path, body)
	return false
}

// TestIdempotencyKeySurvivesARestart: this includes the key of a lease that did not survive.
func TestIdempotencyKeySurvivesARestart(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		c.headers = map[string]string{"Idempotency-Key": "1"}
		first := c.take(`{"names":["x","y"]}`)
		c.server = resumed(t, servers, Config{TTL: 10 * time.Second}, s.Leave(), 0, 1)
		assert.Equal(t, api.KindLost, c.ask("POST", "/v1/locks", `{"names":["x","y"]}`).problem.Kind)
		assert.Equal(t, first.lease.Lease, c.ask("GET", "/v1/session", "").session.Leases[0].Lease)
	})
}

// TestLimitedLockSurvivesTwoRestarts: it is not held longer than its limit.
func TestLimitedLockSurvivesTwoRestarts(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":3600000}`)
		c.take(`{"name":"a","max_hold_ms":60000}`)
		time.Sleep(46 * time.Second)
		left := s.Leave()
		time.Sleep(4 * time.Second) // the time between two servers counts as well
		s = resumed(t, servers, Config{}, left, 1, 0)
		time.Sleep(5 * time.Second)
		assert.InDelta(t, 5_000, s.Leave().Sessions[0].Leases[0].Hold, 100)
	})
}
