package serve

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlocktest"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

func TestValidFor(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		of    term
		since time.Duration
		want  time.Duration
	}{
		"at once":              {term{left: 9900 * ms, ttl: 10 * time.Second, session: 10 * time.Second}, 0, 8900 * ms},
		"a short TTL":          {term{left: 500 * ms, ttl: 500 * ms, session: time.Minute}, 0, 400 * ms},
		"the session is first": {term{left: 9900 * ms, ttl: 10 * time.Second, session: 2 * time.Second}, 0, time.Second},
		"after a wait":         {term{left: 9900 * ms, ttl: 10 * time.Second, session: time.Minute}, time.Minute, time.Minute + 8900*ms - 60*ms},
		"lost":                 {term{left: 0, ttl: 10 * time.Second, session: time.Minute}, time.Minute, 0},
		"nearly over":          {term{left: time.Second, ttl: 10 * time.Second, session: time.Minute}, time.Minute, 0},
	} {
		assert.Equal(t, c.want, validFor(c.of, c.since), name)
	}
}

// TestLocksOfADeadClientAreReleased: this happens when the TTL of its session has passed, but not
// before the end of its last promise.
func TestLocksOfADeadClientAreReleased(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":4000}`)
		c.take(`{"name":"a"}`)
		for range 20 { // the lock is kept while requests arrive
			time.Sleep(3 * time.Second)
			require.Equal(t, http.StatusOK, c.ask("GET", "/v1/session", "").status)
			require.False(t, free(t, servers, "a"))
		}
		last := c.ask("GET", "/v1/session", "")
		end := last.asked.Add(api.Duration(last.session.Leases[0].ValidFor))
		require.True(t, end.After(time.Now()))
		time.Sleep(time.Until(end))
		assert.False(t, free(t, servers, "a"), "the client was told that it has it")
		time.Sleep(time.Until(last.asked.Add(4 * time.Second)))
		synctest.Wait()
		assert.True(t, free(t, servers, "a"))
		assert.Equal(t, api.KindSession, c.ask("GET", "/v1/session", "").problem.Kind)
		assert.Empty(t, s.table.leases)
		assert.Empty(t, s.table.sessions)
	})
}

// TestLeaseWithoutASessionGetsItsOwn: any request for the lease keeps that session alive, and the
// session ends with its leases.
func TestLeaseWithoutASessionGetsItsOwn(t *testing.T) {
	served(t, Config{Limits: Limits{Sessions: 2}}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := &client{t: t, server: s}
		a := c.take(`{"name":"a","ttl_ms":3000,"fenced":true}`)
		require.NotEmpty(t, a.lease.Session)
		require.Positive(t, a.lease.Fence)
		for range 10 {
			time.Sleep(2 * time.Second)
			next := c.ask("GET", "/v1/locks/"+a.lease.Lease, "")
			require.True(t, next.lease.Held)
			require.True(t, next.end().After(time.Now()))
		}
		assert.Equal(t, http.StatusNoContent, c.ask("DELETE", "/v1/locks/"+a.lease.Lease, "").status)
		assert.True(t, free(t, servers, "a"))
		assert.Equal(t, api.KindLease, c.ask("DELETE", "/v1/locks/"+a.lease.Lease, "").problem.Kind)

		a = c.take(`{"name":"a","ttl_ms":3000}`)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.True(t, free(t, servers, "a"))
		release := servers.Hold("a")
		assert.Equal(t, api.KindHeld, c.ask("POST", "/v1/locks", `{"name":"a"}`).problem.Kind)
		release()

		for range 5 { // locks that follow each other must not use up the limit of sessions
			c := &client{t: t, server: s}
			a := c.take(`{"name":"a","ttl_ms":3600000}`)
			c.session = a.lease.Session
			second := c.take(`{"name":"b"}`)
			c.release(a.lease.Lease)
			require.Equal(t, http.StatusOK, c.ask("GET", "/v1/session", "").status, "it has another")
			c.release(second.lease.Lease)
			require.Equal(t, api.KindSession, c.ask("GET", "/v1/session", "").problem.Kind)
		}
		assert.Empty(t, s.table.sessions, "a session without a lease is of no use")
	})
}

// TestLossIsReportedToAWaitingClient: the loss stays visible until the client acknowledges it.
func TestLossIsReportedToAWaitingClient(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		a := c.take(`{"name":"a"}`)
		seen := c.ask("GET", "/v1/session", "").session
		require.Len(t, seen.Leases, 1)
		began := time.Now()
		time.AfterFunc(time.Second, func() { servers.Lose("a") })
		told := c.ask("GET", "/v1/session?wait_ms=3000&seen="+text(seen.Version), "").session
		assert.Less(t, time.Since(began), 2*time.Second)
		require.Len(t, told.Leases, 1)
		assert.False(t, told.Leases[0].Held)
		assert.Zero(t, told.Leases[0].ValidFor)
		assert.Contains(t, told.Leases[0].Lost, "lock lost")
		assert.Equal(t, api.KindLost, c.ask("DELETE", "/v1/locks/"+a.lease.Lease, "").problem.Kind)
		assert.Empty(t, c.ask("GET", "/v1/session", "").session.Leases)
	})
}

// TestEndOfASessionReleasesItsLeases: they are released before the answer, which lists the lost
// leases.
func TestEndOfASessionReleasesItsLeases(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		for range 20 {
			c := open(t, s, "")
			c.take(`{"name":"a"}`)
			c.take(`{"name":"b"}`)
			require.Equal(t, http.StatusNoContent, c.ask("DELETE", "/v1/session", "").status)
			require.True(t, free(t, servers, "a"))
			require.True(t, free(t, servers, "b"))
		}
		c := open(t, s, "")
		c.take(`{"name":"a"}`)
		c.take(`{"name":"b"}`)
		servers.Lose("a")
		assert.Equal(t, api.KindLost, c.ask("DELETE", "/v1/session", "").problem.Kind)
		assert.True(t, free(t, servers, "b"))
		assert.Equal(t, api.KindSession, c.ask("DELETE", "/v1/session", "").problem.Kind)

		c = open(t, s, `{"ttl_ms":60000}`)
		c.take(`{"name":"a","ttl_ms":60000}`)
		end := servers.Outage(2)
		assert.Equal(t, http.StatusAccepted, c.ask("DELETE", "/v1/session", "").status)
		end()
	})
}

// TestLockAtRiskIsReported: a client that polls gets an answer at once when renewals fail, while half
// of the TTL is left, and again when they succeed. For a healthy lock it gets a later end, before
// the end that it knows.
func TestLockAtRiskIsReported(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":60000}`)
		end := c.take(`{"name":"a","ttl_ms":6000}`).end()
		seen := c.ask("GET", "/v1/session", "").session.Version
		poll := func() api.SessionAnswer {
			a := c.ask("GET", "/v1/session?wait_ms=60000&seen="+text(seen), "")
			require.True(t, time.Now().Before(end))
			require.True(t, a.session.Leases[0].Held)
			end = a.asked.Add(api.Duration(a.session.Leases[0].ValidFor))
			return a.session
		}
		for range 20 {
			state := poll()
			require.False(t, state.Leases[0].AtRisk)
			require.Equal(t, seen, state.Version)
		}
		for range 2 { // each time that its end is near
			end := servers.Outage(2)
			for state := poll(); !state.Leases[0].AtRisk; state = poll() {
				require.Equal(t, seen, state.Version)
			}
			state := poll()
			require.Equal(t, seen+1, state.Version)
			require.GreaterOrEqual(t, state.Leases[0].ValidFor, int64(2000), "half of the TTL, less the margin")
			seen = state.Version
			end()
			for state := poll(); state.Leases[0].AtRisk; state = poll() {
				require.Equal(t, seen, state.Version)
			}
		}
	})
}

// TestRepeatedRequestGetsItsLease: a client that repeats its request with the same key gets its lease.
func TestRepeatedRequestGetsItsLease(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		c.headers = map[string]string{"Idempotency-Key": "1"}
		release := servers.Hold("a")
		answers := make(chan answer, 3)
		for range cap(answers) {
			go func() { answers <- c.ask("POST", "/v1/locks", `{"name":"a","wait_ms":5000}`) }()
		}
		time.Sleep(time.Second)
		release()
		first := (<-answers).lease.Lease
		require.NotEmpty(t, first)
		assert.Equal(t, first, (<-answers).lease.Lease)
		assert.Equal(t, first, (<-answers).lease.Lease)
		assert.Equal(t, first, c.take(`{"name":"a","wait_ms":4000}`).lease.Lease)
		assert.Equal(t, api.KindConflict, c.ask("POST", "/v1/locks", `{"name":"b"}`).problem.Kind)

		gone, leave := context.WithCancel(t.Context())
		c.headers["Idempotency-Key"] = "2"
		leave()
		c.askUnder(gone, "POST", "/v1/locks", `{"name":"b"}`)
		c.take(`{"name":"b"}`)
		assert.Len(t, c.ask("GET", "/v1/session", "").session.Leases, 2)
		c.session = ""
		assert.Equal(t, api.KindBad, c.ask("POST", "/v1/locks", `{"name":"c"}`).problem.Kind)
	})
}

// TestRepeatedRequestWaitsForItsOwnTime: the time of the first request no longer counts.
func TestRepeatedRequestWaitsForItsOwnTime(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		c.headers = map[string]string{"Idempotency-Key": "1"}
		release := servers.Hold("a")
		first := make(chan answer)
		go func() { first <- c.ask("POST", "/v1/locks", `{"name":"a","wait_ms":15000}`) }()
		time.Sleep(time.Second)
		for wait, most := range map[string]time.Duration{"0": time.Second, "3000": 3 * time.Second} {
			began := time.Now()
			again := c.ask("POST", "/v1/locks", `{"name":"a","wait_ms":`+wait+`}`)
			assert.Equal(t, api.KindHeld, again.problem.Kind)
			assert.LessOrEqual(t, time.Since(began), most)
		}
		release()
		assert.True(t, (<-first).lease.Held)
	})
}

// TestLateCopyTakesNoLock: a proxy may repeat a request whose lock has been released or
// lost in the meantime.
func TestLateCopyTakesNoLock(t *testing.T) {
	served(t, Config{Limits: Limits{Total: 2}}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":3600000}`)
		take := func(key string) answer {
			c.headers = map[string]string{"Idempotency-Key": key}
			return c.ask("POST", "/v1/locks", `{"name":"a"}`)
		}
		c.release(take("1").lease.Lease)
		late := take("1")
		assert.Equal(t, http.StatusGone, late.status)
		assert.Equal(t, api.KindLease, late.problem.Kind)
		assert.True(t, free(t, servers, "a"))

		second := take("2").lease.Lease
		servers.Lose("a")
		time.Sleep(5 * time.Second)
		late = take("2")
		assert.Equal(t, http.StatusGone, late.status)
		assert.Equal(t, api.KindLost, late.problem.Kind)
		assert.Equal(t, api.KindLost, c.ask("DELETE", "/v1/locks/"+second, "").problem.Kind)
		assert.Equal(t, api.KindLease, take("2").problem.Kind)

		s = resumed(t, servers, Config{TTL: 10 * time.Second, Limits: Limits{Total: 2}}, s.Leave(), 0, 0)
		c.server = s
		assert.Equal(t, api.KindLease, take("1").problem.Kind, "the next server knows")
		c.release(take("3").lease.Lease)
		assert.Len(t, s.table.over, 2, "as many as there may be leases")
		assert.Equal(t, api.KindLease, take("2").problem.Kind)
		for range 3 {
			time.Sleep(keepKeys / 2)
			require.Equal(t, http.StatusOK, c.ask("GET", "/v1/session", "").status)
		}
		c.release(take("4").lease.Lease)
		assert.Len(t, s.table.over, 1, "not for ever")
	})
}

// TestEndingServerNotifiesItsClients: the server grants no more locks, notifies its clients, and leaves them their time.
func TestEndingServerNotifiesItsClients(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c, other := open(t, s, ""), open(t, s, "")
		a := c.take(`{"name":"a"}`)
		other.take(`{"name":"b","ttl_ms":2000}`)
		waiting := make(chan answer, 1)
		go func() { waiting <- other.ask("POST", "/v1/locks", `{"name":"a","wait_ms":60000}`) }()
		synctest.Wait()
		seen := c.ask("GET", "/v1/session", "")
		require.Empty(t, seen.headers.Get("Connection"))
		news := make(chan answer, 1)
		go func() { news <- c.ask("GET", "/v1/session?wait_ms=3000&seen="+text(seen.session.Version), "") }()
		synctest.Wait()

		grace, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		left := make(chan int)
		go func() {
			released, _ := s.Close(grace)
			left <- released
		}()
		told := <-news
		assert.True(t, told.session.Ending)
		assert.Equal(t, "close", told.headers.Get("Connection"), "the next request is not on a connection that is closed meanwhile")
		assert.Equal(t, api.KindEnding, (<-waiting).problem.Kind)
		assert.Equal(t, api.KindEnding, c.ask("POST", "/v1/locks", `{"name":"c"}`).problem.Kind)
		assert.Equal(t, api.KindEnding, c.ask("POST", "/v1/sessions", "").problem.Kind)
		require.False(t, free(t, servers, "a"))
		c.release(a.lease.Lease)
		began := time.Now()
		assert.Equal(t, 1, <-left)
		assert.Greater(t, time.Since(began), 4*time.Second)
		assert.True(t, free(t, servers, "b"))
	})
}

func TestKinds(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"owner":"web-3"}`)
		c.take(`{"name":"r","kind":"shared"}`)
		c.take(`{"name":"r","kind":"shared"}`)
		held := c.ask("POST", "/v1/locks", `{"name":"r"}`)
		assert.Equal(t, http.StatusLocked, held.status)

		assert.Len(t, c.take(`{"name":"p","permits":3,"weight":2}`).lease.Permits, 2)
		c.take(`{"name":"p","permits":3}`)
		assert.Equal(t, api.KindHeld, c.ask("POST", "/v1/locks", `{"name":"p","permits":3}`).problem.Kind)

		several := c.take(`{"names":["x","y"],"fenced":true}`)
		assert.Equal(t, []string{"x", "y"}, several.lease.Names)
		assert.Len(t, several.lease.Fences, 2)
		held = c.ask("POST", "/v1/locks", `{"names":["y","z"]}`)
		assert.Equal(t, []string{"y"}, held.problem.InTheWay)

		c.take(`{"name":"o","fair":true,"wait_ms":1000}`)
		held = c.ask("POST", "/v1/locks", `{"name":"o"}`)
		require.NotNil(t, held.problem.Holder)
		assert.Equal(t, "web-3", held.problem.Holder.Owner)
		assert.Positive(t, held.problem.RetryAfter)
		assert.NotEmpty(t, held.headers.Get("Retry-After"))

		limited := c.take(`{"name":"m","max_hold_ms":2000}`)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.False(t, c.ask("GET", "/v1/locks/"+limited.lease.Lease, "").lease.Held)

		first := c.take(`{"name":"tick","every_ms":60000}`)
		assert.NotEmpty(t, first.lease.Tick)
		c.release(first.lease.Lease)
		assert.Equal(t, api.KindDone, c.ask("POST", "/v1/locks", `{"name":"tick","every_ms":60000}`).problem.Kind)
		time.Sleep(time.Minute)
		c = open(t, s, "")
		c.take(`{"name":"tick","every_ms":60000}`)

		const apart = `{"name":"apart","apart_ms":60000}`
		time.Sleep(time.Until(time.Now().Round(time.Minute).Add(90*time.Second - time.Millisecond)))
		c = open(t, s, `{"ttl_ms":600000}`)
		last := c.take(apart)
		assert.Empty(t, last.lease.Tick)
		c.release(last.lease.Lease)
		for _, after := range []time.Duration{time.Second, 58 * time.Second} { // across a boundary of the clock
			time.Sleep(after)
			soon := c.ask("POST", "/v1/locks", apart)
			assert.Equal(t, api.KindDone, soon.problem.Kind)
			assert.Equal(t, "the last start was less than apart_ms ago", soon.problem.Detail)
		}
		time.Sleep(2 * time.Second)
		c.release(c.take(apart).lease.Lease)
		other := c.ask("POST", "/v1/locks", `{"name":"tick","apart_ms":60000,"wait_ms":300000}`)
		assert.Equal(t, api.KindDone, other.problem.Kind, "it has the mark of a tick")
	})
}

// TestTickIsTheTickOfTheRequest, not of the grant: after a holder, after an outage, and after
// another request with the same key.
func TestTickIsTheTickOfTheRequest(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		const body = `{"name":"tick","every_ms":60000,"wait_ms":300000}`
		c := open(t, s, `{"ttl_ms":600000}`)
		came := time.Now().Round(time.Minute)
		time.AfterFunc(50*time.Second, servers.Hold("tick"))
		first := c.take(body)
		assert.Equal(t, came.UTC().Format(time.RFC3339), first.lease.Tick)
		c.release(first.lease.Lease)
		next := c.take(`{"name":"tick","every_ms":60000}`)
		assert.Equal(t, came.Add(time.Minute).UTC().Format(time.RFC3339), next.lease.Tick, "it was not spent")
		c.release(next.lease.Lease)

		time.Sleep(2 * time.Minute) // another tick
		time.AfterFunc(3*time.Minute, servers.Outage(2))
		late := c.ask("POST", "/v1/locks", body)
		assert.Equal(t, http.StatusConflict, late.status)
		assert.Equal(t, api.KindLate, late.problem.Kind)
		assert.True(t, free(t, servers, "tick"))

		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		c.headers = map[string]string{"Idempotency-Key": "k"}
		came = time.Now()
		release := servers.Hold("tick")
		left, leave := context.WithCancel(t.Context())
		go c.askUnder(left, "POST", "/v1/locks", body)
		synctest.Wait()
		time.AfterFunc(40*time.Second, leave)
		time.AfterFunc(50*time.Second, release)
		assert.Equal(t, came.UTC().Format(time.RFC3339), c.take(body).lease.Tick)
	})
}

// TestDailyTickUsesTheRequestedZone: the zone of the server does not matter.
func TestDailyTickUsesTheRequestedZone(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		for _, at := range []struct{ zone, day string }{
			{"America/New_York", "1999-12-31"}, {"Europe/Berlin", "2000-01-01"}, {"UTC", "2000-01-01"}, // the bubble's clock begins with the year, in UTC
		} {
			body := `{"name":"` + at.zone + `","every_day_in":"` + at.zone + `"}`
			c := open(t, s, "")
			first := c.take(body)
			assert.Equal(t, at.day, first.lease.Tick)
			c.release(first.lease.Lease)
			assert.Equal(t, api.KindDone, c.ask("POST", "/v1/locks", body).problem.Kind)
		}
		time.Sleep(5 * time.Hour)
		c := open(t, s, "")
		assert.Equal(t, "2000-01-01", c.take(`{"name":"America/New_York","every_day_in":"America/New_York"}`).lease.Tick)
		assert.Equal(t, api.KindDone, c.ask("POST", "/v1/locks", `{"name":"UTC","every_day_in":"UTC"}`).problem.Kind)
	})
}

// TestRefusedLeaseMarksNoTick: the client has no room for the lock.
func TestRefusedLeaseMarksNoTick(t *testing.T) {
	served(t, Config{Limits: Limits{Leases: 1}}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":600000}`)
		held := c.take(`{"name":"a"}`).lease.Lease
		assert.Equal(t, api.KindLimit, c.ask("POST", "/v1/locks", `{"name":"tick","every_ms":60000}`).problem.Kind)
		c.release(held)
		tick := c.take(`{"name":"tick","every_ms":60000}`).lease.Lease
		c.release(tick)
	})
}

// TestLongTTLNeedsAnOperator: one lock with a long TTL can keep all clients out for that time.
func TestLongTTLNeedsAnOperator(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":600000}`)
		refused := c.ask("POST", "/v1/locks", `{"name":"a","ttl_ms":31536000000}`)
		assert.Equal(t, http.StatusBadRequest, refused.status)
		assert.Contains(t, refused.problem.Detail, `"ttl_ms": is above an hour: after a restart of most servers no client would get any lock for 8760h0m0s: if that is acceptable, an operator sets --max-ttl`)
		c.take(`{"name":"a","ttl_ms":3600000}`)
	})
}

func TestOutage(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":60000}`)
		lease := c.take(`{"name":"a"}`).lease.Lease
		end := servers.Outage(2)
		refused := c.ask("POST", "/v1/locks", `{"name":"b"}`)
		assert.Equal(t, http.StatusServiceUnavailable, refused.status)
		assert.Equal(t, api.KindNoQuorum, refused.problem.Kind)
		assert.Equal(t, api.KindNoQuorum, c.ask("POST", "/v1/locks/"+lease+"/extend", "").problem.Kind)
		time.AfterFunc(4*time.Second, end)
		c.take(`{"name":"b","wait_ms":20000}`)
		assert.Equal(t, http.StatusOK, c.ask("POST", "/v1/locks/"+lease+"/extend", "").status)
	})
}

func TestInspection(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"owner":"web-3"}`)
		assert.JSONEq(t, `{"name":"a","held":false,"holders":[],"votes":3,"servers":3,"version":0}`, c.ask("GET", "/v1/locks?name=a", "").body)
		c.take(`{"name":"a","permits":2}`)
		assert.Contains(t, c.ask("GET", "/v1/locks?name=a&permits=2", "").body, `,"owner":"web-3"`)
	})
}

// A leaving is the context of a client that leaves at the moment of the grant.
type leaving struct {
	context.Context
	left func() bool
}

func (l leaving) Err() error {
	if l.left() {
		return context.Canceled
	}
	return nil
}

func TestLockOfADisconnectedClientIsReleased(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c, left := open(t, s, ""), false
		c.askUnder(leaving{context.Background(), func() bool { left = left || !free(t, servers, "a"); return left }}, "POST", "/v1/locks", `{"name":"a"}`)
		assert.True(t, left, "it was granted")
		assert.True(t, free(t, servers, "a"))
		assert.Empty(t, c.ask("GET", "/v1/session", "").session.Leases)
	})
}
