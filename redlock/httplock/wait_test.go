package httplock_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// TestWaitEndsWithTheHolder: the handler then runs.
func TestWaitEndsWithTheHolder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		k := take(t, open(t, w), "x")
		time.AfterFunc(3*time.Second, func() { k.Release(context.Background()) })
		ran := 0
		h := wrap(t, open(t, w), func(http.ResponseWriter, *http.Request) { ran++ }, httplock.Wait(10*time.Second))
		waited := took(func() { assert.Equal(t, 200, serve(h, request(t, "x")).Code) })
		assert.Equal(t, 1, ran)
		assert.Greater(t, waited, 3*time.Second)
		assert.Less(t, waited, 3*time.Second+10*rtt)
	})
}

// TestTimedOutWaitForAHeldLockGets423: the holder is in another process or in this one. Retry-After
// is the holder's remaining time.
func TestTimedOutWaitForAHeldLockGets423(t *testing.T) {
	for name, local := range map[string]bool{"another process": false, "this process": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l := open(t, w)
				holder := l
				if !local {
					holder = open(t, w)
				}
				take(t, holder, "x", redlock.Renew(false))
				h := wrap(t, l, mustNotRun(t), httplock.Wait(4*time.Second))
				waited := took(func() { isProblem(t, serve(h, request(t, "x")), 423, locked, "6") })
				assert.GreaterOrEqual(t, waited, 4*time.Second)
				assert.LessOrEqual(t, waited, 4*time.Second+2*nodeTimeout)
			})
		})
	}
}

// TestOutageGets503: the end of the wait may interrupt the attempt at any point, and the nodes that
// answer may hold another client's lock.
func TestOutageGets503(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		take(t, open(t, w), "held")
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		for _, wait := range []time.Duration{0, nodeTimeout / 5} {
			h := wrap(t, open(t, w), mustNotRun(t), httplock.Wait(wait))
			for _, name := range []string{"held", "free"} {
				waited := took(func() { isProblem(t, serve(h, request(t, name)), 503, unavailable, "5") })
				assert.LessOrEqual(t, waited, wait+nodeTimeout)
			}
		}
		for _, s := range w.Servers()[:3] {
			s.Resume()
		}
	})
}

// TestRetriesOfLockCount: the retries count with and without Wait. The default is one try.
func TestRetriesOfLockCount(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		take(t, open(t, w), "x")
		l := open(t, w)
		retries := httplock.Lock(redlock.Retries(2), redlock.RetryInterval(time.Second))
		for _, c := range []struct {
			opts []httplock.Option
			want time.Duration
		}{
			{nil, 2 * rtt},
			{[]httplock.Option{retries}, 2*time.Second + 2*rtt},
			{[]httplock.Option{retries, httplock.Wait(time.Minute)}, 2*time.Second + 2*rtt},
			{[]httplock.Option{httplock.Wait(1500 * time.Millisecond), retries}, 1500 * time.Millisecond},
		} {
			h := wrap(t, l, mustNotRun(t), c.opts...)
			waited := took(func() { assert.Equal(t, 423, serve(h, request(t, "x")).Code) })
			assert.Equal(t, c.want, waited)
		}
	})
}

// TestRequestThatEndsWhileItWaits: the handler does not run, and no lock is left behind. The
// request gets an answer, because without an answer net/http would send 200 OK to a client that
// still listens.
func TestWaitingRequestEndsCleanly(t *testing.T) {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		t.Run(end.Error(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				k := take(t, open(t, w), "x")
				ctx, cancel := context.WithCancel(t.Context())
				if end == context.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				} else {
					time.AfterFunc(time.Second, cancel)
				}
				defer cancel()

				var got error
				h := wrap(t, open(t, w), mustNotRun(t), httplock.Wait(time.Hour), httplock.Answer(
					func(w http.ResponseWriter, r *http.Request, err error) {
						got = err
						httplock.ProblemOf(err).ServeHTTP(w, r)
					}))
				waited := took(func() {
					answer := serve(h, request(t, "x").WithContext(ctx))
					assert.Equal(t, 423, answer.Code)
					assert.Equal(t, locked, answer.Body.String())
				})
				assert.LessOrEqual(t, waited, time.Second+rtt, "no last try")
				assert.True(t, errors.Is(got, end), got)

				assert.NoError(t, k.Release(t.Context()))
				time.Sleep(rtt)
				assert.Zero(t, holding(w, "x"))
			})
		})
	}
}
