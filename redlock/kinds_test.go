package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// kinds are all that a failure can be. No error may be two of them.
var kinds = []error{
	redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrReleased, redlock.ErrClosed,
	context.Canceled, context.DeadlineExceeded,
}

// isOnly checks that err is of one kind, and of no other.
func isOnly(t *testing.T, err, kind error) {
	t.Helper()
	require.Error(t, err)
	for _, k := range kinds {
		assert.Equal(t, k == kind, errors.Is(err, k), "errors.Is(%q, %q)", err, k)
	}
	assert.Regexp(t, "^redlock: ", err.Error())
}

// TestAnErrorIsOfOneKind, in every situation.
func TestAnErrorIsOfOneKind(t *testing.T) {
	const soon = 20 * time.Millisecond // less than the node timeout of 100 ms
	hangAll := func(w *sim.World) {
		for _, s := range w.Servers() {
			s.Hang()
		}
	}
	occupy := func(w *sim.World, n int) {
		for _, s := range w.Servers()[:n] {
			s.Set("x", "another", redlock.NoTTL)
		}
	}
	type situation struct {
		w   *sim.World
		l   *redlock.Locker
		c   *sim.Client
		ctx func(time.Duration) context.Context // ends by its deadline
		end func(time.Duration) context.Context // ends by being cancelled

		close func(time.Duration) // closes l so much later
	}
	for name, row := range map[string]struct {
		kind error
		fail func(t *testing.T, s situation) error
	}{
		"acquire: held": {redlock.ErrHeld, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			_, err := s.l.TryAcquire(t.Context(), "x")
			return err
		}},
		"acquire: held, and a minority is down": {redlock.ErrHeld, func(t *testing.T, s situation) error {
			occupy(s.w, 3)
			s.w.Servers()[3].Crash()
			s.w.Servers()[4].Hang()
			_, err := s.l.TryAcquire(t.Context(), "x")
			return err
		}},
		"acquire: held, tried thrice": {redlock.ErrHeld, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			_, err := s.l.Acquire(t.Context(), "x", redlock.Retries(2))
			return err
		}},
		"acquire: outage": {redlock.ErrNoQuorum, func(t *testing.T, s situation) error {
			for _, server := range s.w.Servers()[:3] {
				server.Crash()
			}
			_, err := s.l.Acquire(t.Context(), "x")
			return err
		}},
		"acquire: an outage, and held where there is none": {redlock.ErrNoQuorum, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			for _, server := range s.w.Servers()[:3] {
				server.Hang()
			}
			_, err := s.l.Acquire(t.Context(), "x")
			return err
		}},
		"acquire: another type of key": {redlock.ErrNoQuorum, func(t *testing.T, s situation) error {
			for _, server := range s.w.Servers() {
				server.SetWrongType("x")
			}
			_, err := s.l.Acquire(t.Context(), "x")
			return err
		}},
		"acquire: votes too late": {redlock.ErrNoQuorum, func(t *testing.T, s situation) error {
			time.AfterFunc(leg, s.c.Pause)
			time.AfterFunc(ttl, s.c.Resume)
			_, err := s.l.TryAcquire(t.Context(), "x")
			return err
		}},
		"acquire: cancelled before": {context.Canceled, func(t *testing.T, s situation) error {
			_, err := s.l.Acquire(canceled(t), "x")
			return err
		}},
		"acquire: cancelled while it votes": {context.Canceled, func(t *testing.T, s situation) error {
			hangAll(s.w)
			_, err := s.l.Acquire(s.end(soon), "x")
			return err
		}},
		"acquire: deadline while it votes": {context.DeadlineExceeded, func(t *testing.T, s situation) error {
			hangAll(s.w)
			_, err := s.l.Acquire(s.ctx(soon), "x")
			return err
		}},
		"acquire: cancelled while it waits": {context.Canceled, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			_, err := s.l.Acquire(s.end(time.Second), "x")
			return err
		}},
		"acquire: deadline while it waits": {context.DeadlineExceeded, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			_, err := s.l.Acquire(s.ctx(time.Second), "x")
			return err
		}},
		"acquire: deadline in the queue": {context.DeadlineExceeded, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			go s.l.Acquire(s.end(2*time.Second), "x")
			synctest.Wait()
			_, err := s.l.Acquire(s.ctx(time.Second), "x")
			return err
		}},
		"acquire: closed before": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			s.l.Close()
			_, err := s.l.Acquire(t.Context(), "x")
			return err
		}},
		"acquire: closed, and cancelled": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			s.l.Close()
			_, err := s.l.TryAcquire(canceled(t), "x")
			return err
		}},
		"acquire: closed while it waits": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			s.close(time.Second)
			_, err := s.l.Acquire(t.Context(), "x")
			return err
		}},
		"acquire: closed while it queues": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			go s.l.Acquire(t.Context(), "x")
			synctest.Wait()
			s.close(time.Second)
			_, err := s.l.Acquire(t.Context(), "x")
			return err
		}},
		"acquire: closed while it votes": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			s.close(leg)
			_, err := s.l.Acquire(t.Context(), "x")
			return err
		}},
		"extend: released": {redlock.ErrReleased, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			require.NoError(t, k.Release(t.Context()))
			return k.Extend(t.Context())
		}},
		"extend: released meanwhile": {redlock.ErrReleased, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			time.AfterFunc(leg, func() { k.Release(t.Context()) })
			return k.Extend(t.Context())
		}},
		"extend: too late": {redlock.ErrLost, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x", redlock.Renew(false))
			time.Sleep(ttl)
			return k.Extend(t.Context())
		}},
		"extend: gone": {redlock.ErrLost, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			for _, server := range s.w.Servers()[:3] {
				server.Del("x")
			}
			return k.Extend(t.Context())
		}},
		"extend: outage": {redlock.ErrNoQuorum, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			hangAll(s.w)
			return k.Extend(t.Context())
		}},
		"extend: cancelled": {context.Canceled, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			hangAll(s.w)
			return k.Extend(s.end(soon))
		}},
		"release: twice": {redlock.ErrReleased, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			require.NoError(t, k.Release(t.Context()))
			return k.Release(t.Context())
		}},
		"release: too late": {redlock.ErrLost, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x", redlock.Renew(false))
			time.Sleep(ttl)
			return k.Release(t.Context())
		}},
		"release: gone": {redlock.ErrLost, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			for _, server := range s.w.Servers()[:3] {
				server.Del("x")
			}
			return k.Release(t.Context())
		}},
		"release: outage": {redlock.ErrNoQuorum, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			hangAll(s.w)
			return k.Release(t.Context())
		}},
		"release: deadline": {context.DeadlineExceeded, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			hangAll(s.w)
			return k.Release(s.ctx(soon))
		}},
		"extend: closed": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			s.l.Close()
			return k.Extend(t.Context())
		}},
		"acquire: closed while it votes in vain": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			occupy(s.w, 5)
			s.close(leg)
			_, err := s.l.TryAcquire(t.Context(), "x")
			return err
		}},
		"release: closed": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			k := take(t, s.l, "x")
			s.l.Close()
			return k.Release(t.Context())
		}},
		"inspect: outage": {redlock.ErrNoQuorum, func(t *testing.T, s situation) error {
			hangAll(s.w)
			_, err := s.l.Inspect(t.Context(), "x")
			return err
		}},
		"inspect: deadline": {context.DeadlineExceeded, func(t *testing.T, s situation) error {
			hangAll(s.w)
			_, err := s.l.Inspect(s.ctx(soon), "x")
			return err
		}},
		"inspect: closed": {redlock.ErrClosed, func(t *testing.T, s situation) error {
			s.l.Close()
			_, err := s.l.Inspect(t.Context(), "x")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				s := situation{w: w}
				s.l, s.c = open(t, w, redlock.TTL(ttl))
				s.ctx = func(d time.Duration) context.Context {
					ctx, cancel := context.WithTimeout(t.Context(), d)
					t.Cleanup(cancel)
					return ctx
				}
				s.end = func(d time.Duration) context.Context {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(d, cancel)
					return ctx
				}
				s.close = func(d time.Duration) {
					closed := make(chan struct{})
					time.AfterFunc(d, func() { defer close(closed); s.l.Close() })
					t.Cleanup(func() { <-closed })
				}
				isOnly(t, row.fail(t, s), row.kind)
			})
		})
	}
}
