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
)

// TestARequestAtTheLastMoment keeps its session: the timer that ran out while it was answered is of the
// time before.
func TestARequestAtTheLastMoment(t *testing.T) {
	served(t, Config{}, func(t *testing.T, _ *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		of, err := s.table.session(c.session, "")
		require.NoError(t, err)
		of.leave()
		of.expire() // the goroutine of the timer, which was late
		assert.Equal(t, http.StatusOK, c.ask("GET", "/v1/session", "").status)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, kindSession, c.ask("GET", "/v1/session", "").problem.Kind)
	})
}

// TestNothingIsToldBeyondTheEnd of the server, of the lock, or of the session.
func TestNothingIsToldBeyondTheEnd(t *testing.T) {
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
				assert.False(t, a.asked.Add(millis(l.ValidFor)).After(end), "%v is told %v before the end", millis(l.ValidFor), time.Until(end))
			}
			assert.False(t, free(t, servers, "a"))
		}
		assert.Equal(t, [2]int{1, 1}, <-over)
		assert.False(t, free(t, servers, "a"), "the client was told that it has it, before the end was known")
		assert.True(t, free(t, servers, "b"))
	})
}

// TestALockThatComesWithTheEnd is not granted: the server counts what its clients have once, and what
// came later would be told, and released at once.
func TestALockThatComesWithTheEnd(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		of, err := s.table.session(c.session, "")
		require.NoError(t, err)
		lock, err := servers.Locker().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		over, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waiter := open(t, s, "")
		waiter.take(`{"name":"b"}`) // the end waits for it
		done := make(chan int)
		go func() {
			_, left := s.Close(over)
			done <- left
		}()
		synctest.Wait()
		_, err = of.add(lock, grant{}, &attempt{wish: &wish{}})
		assert.ErrorIs(t, err, errEnding)
		_, err = s.openSession(&request{client: anybody}, sessionWish{TTL: 10_000}, false)
		assert.ErrorIs(t, err, errEnding)
		of.leave()
		assert.Equal(t, 1, <-done)
		assert.NoError(t, lock.Release(t.Context()), "it is the caller's")
	})
}

// TestALeaseThatIsReleasedBeforeItIsTold, by a client that has seen it in its state, is not the answer
// to the request for it when that comes again.
func TestALeaseThatIsReleasedBeforeItIsTold(t *testing.T) {
	served(t, Config{}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := open(t, s, "")
		of, err := s.table.session(c.session, "")
		require.NoError(t, err)
		defer of.leave()
		w := wish{Name: "a"}
		require.NoError(t, w.check(10*time.Second))
		first, isNew, err := of.try(t.Context(), "1", &w)
		require.NoError(t, err)
		require.True(t, isNew)
		lock, err := servers.Locker().TryAcquire(t.Context(), "a")
		require.NoError(t, err)
		l, err := of.add(lock, w.grant(lock, time.Time{}), first)
		require.NoError(t, err)
		c.release(l.id)
		of.settle(first, l)
		told, err := l.locked(&request{since: time.Now()})
		require.NoError(t, err)
		assert.False(t, told.Held)
		c.headers = map[string]string{"Idempotency-Key": "1"}
		assert.Equal(t, kindLease, c.ask("POST", "/v1/locks", `{"name":"a"}`).problem.Kind)
	})
}
