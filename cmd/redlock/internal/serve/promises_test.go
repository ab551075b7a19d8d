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

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// TestRequestAtTheLastMomentKeepsItsSession: the timer that expired during the request belongs to
// the time before it.
func TestRequestAtTheLastMomentKeepsItsSession(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		of, err := s.table.session(c.session, "")
		require.NoError(t, err)
		of.leave()
		of.expire() // the timer's goroutine runs late
		assert.Equal(t, http.StatusOK, c.ask("GET", "/v1/session", "").status)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, api.KindSession, c.ask("GET", "/v1/session", "").problem.Kind)
	})
}

// TestLateTimerReleasesNoPromisedLock: a timer that expired before the session's last requests does
// not end a session whose client may work until its last promise.
func TestLateTimerReleasesNoPromisedLock(t *testing.T) {
	f := twoClients(t)
	f.change(1, func(c *rights.Client) { c.Operator = true })
	served(t, Config{Rights: f}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		billing, operator := as(t, s, "billing"), as(t, s, "payroll")
		billing.session = billing.ask("POST", "/v1/sessions", "").session.Session
		taken := billing.take(`{"name":"billing/a"}`)
		of := s.table.sessions[billing.session]
		operator.session = api.PublicID(billing.session)
		require.Equal(t, http.StatusAccepted, operator.ask("DELETE", "/v1/session", "").status)
		of.expire() // the goroutine of the timer, which was late
		time.Sleep(time.Until(taken.end()) - time.Millisecond)
		assert.False(t, free(t, servers, "billing/a"), "its client may work")
		time.Sleep(time.Second)
		assert.True(t, free(t, servers, "billing/a"))
	})
}

// TestNoPromiseExceedsTheEnd: the server, the lock or the session ends.
func TestNoPromiseExceedsTheEnd(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, `{"ttl_ms":60000}`)
		limited := c.take(`{"name":"limited","max_hold_ms":2000}`)
		assert.LessOrEqual(t, limited.lease.ValidFor, int64(2000))
		c.take(`{"name":"a","ttl_ms":60000}`)
		c.take(`{"name":"b","ttl_ms":5000}`)
		grace, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		over := make(chan [2]int)
		end := time.Now().Add(5 * time.Second)
		go func() {
			released, left := s.Close(grace)
			over <- [2]int{released, left}
		}()
		synctest.Wait()
		for range 4 {
			time.Sleep(time.Second)
			a := c.ask("GET", "/v1/session", "")
			require.True(t, a.session.Ending)
			for _, l := range a.session.Leases {
				assert.False(t, a.asked.Add(api.Duration(l.ValidFor)).After(end), "%v is told %v before the end", api.Duration(l.ValidFor), time.Until(end))
			}
			assert.False(t, free(t, servers, "a"))
		}
		assert.Equal(t, [2]int{1, 1}, <-over)
		assert.False(t, free(t, servers, "a"), "the client was told that it has it, before the end was known")
		assert.True(t, free(t, servers, "b"))
	})
}

// TestLockAtTheEndIsNotGranted: the server counts the leases of its clients once. A later lease
// would be reported, and released at once.
func TestLockAtTheEndIsNotGranted(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		of, err := s.table.session(c.session, "")
		require.NoError(t, err)
		lock, err := servers.Locker().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		over, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waiter := open(t, s, "")
		waiter.take(`{"name":"b"}`) // the end of the server waits for this client
		done := make(chan int)
		go func() {
			_, left := s.Close(over)
			done <- left
		}()
		synctest.Wait()
		_, err = of.add(lock, api.Grant{}, &attempt{lockRequest: &api.LockRequest{}}, anybody)
		assert.ErrorIs(t, err, api.ErrEnding)
		_, err = s.openSession(&request{client: anybody}, api.SessionRequest{TTL: 10_000}, false)
		assert.ErrorIs(t, err, api.ErrEnding)
		of.leave()
		assert.Equal(t, 1, <-done)
		assert.NoError(t, lock.Release(t.Context()), "it is the caller's")
	})
}

// TestLeaseIsReleasedDuringItsRepetition: a copy of the request has found the lease, which another
// request then releases.
func TestLeaseIsReleasedDuringItsRepetition(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		c.headers = map[string]string{"Idempotency-Key": "1"}
		lease := c.take(`{"name":"a"}`).lease.Lease
		of, err := s.table.session(c.session, "")
		require.NoError(t, err)
		defer of.leave()
		w := *of.attempts["1"].lockRequest
		_, found, err := of.try(t.Context(), "1", &w)
		require.NoError(t, err)
		c.release(lease)
		a, err := found.locked(&request{since: time.Now()})
		require.NoError(t, err)
		assert.False(t, a.Held)
	})
}

// TestReleasedLeaseIsNotReturned: a client has released the lease that it saw in its state. A
// repetition of its request must not return that lease.
func TestReleasedLeaseIsNotReturned(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		of, err := s.table.session(c.session, "")
		require.NoError(t, err)
		defer of.leave()
		w := api.LockRequest{Name: "a"}
		require.NoError(t, w.Check(10*time.Second))
		first, earlier, err := of.try(t.Context(), "1", &w)
		require.NoError(t, err)
		require.Nil(t, earlier)
		lock, err := servers.Locker().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		l, err := of.add(lock, w.Grant(lock, time.Time{}), first, anybody)
		require.NoError(t, err)
		c.release(l.id)
		of.settle(first, l)
		told, err := l.locked(&request{since: time.Now()})
		require.NoError(t, err)
		assert.False(t, told.Held)
		c.headers = map[string]string{"Idempotency-Key": "1"}
		assert.Equal(t, api.KindLease, c.ask("POST", "/v1/locks", `{"name":"a"}`).problem.Kind)
	})
}
