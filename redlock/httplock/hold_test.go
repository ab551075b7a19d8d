package httplock_test

import (
	"context"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// lockOf returns the lock under which a handler runs.
func lockOf(t *testing.T, r *http.Request) *redlock.Lock {
	t.Helper()
	lock, ok := httplock.FromContext(r.Context())
	require.True(t, ok)
	return lock
}

// awaitEnd waits for the end of ctx, for at most an hour.
func awaitEnd(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour):
	}
}

// TestHandlerRunsUnderItsLock: the request's context keeps its values, and the lock is released at
// the end.
func TestHandlerRunsUnderItsLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		type key struct{}
		ran := 0
		h := wrap(t, open(t, w), func(rw http.ResponseWriter, r *http.Request) {
			ran++
			time.Sleep(time.Minute)
			assert.Equal(t, 5, holding(w, "x"))
			assert.Equal(t, "x", lockOf(t, r).Name())
			assert.True(t, lockOf(t, r).Valid())
			assert.NoError(t, r.Context().Err())
			assert.Equal(t, "value", r.Context().Value(key{}))
			assert.Equal(t, "value", lockOf(t, r).Context().Value(key{}))
			rw.WriteHeader(http.StatusTeapot)
		}, httplock.OnLost(func(*http.Request, error) { t.Error("nothing was lost") }))
		r := request(t, "x")
		r = r.WithContext(context.WithValue(r.Context(), key{}, "value"))
		assert.Equal(t, http.StatusTeapot, serve(h, r).Code)
		assert.Equal(t, 1, ran)
		assert.LessOrEqual(t, holding(w, "x"), 2, "a quorum has confirmed")
		time.Sleep(leg)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestLossEndsTheHandlersContext: the cause is the reason of the loss. The handler writes the
// answer, and OnLost is called.
func TestLossEndsTheHandlersContext(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*redlock.Locker, *sim.World)
		want error
	}{
		"not renewed":   {func(*redlock.Locker, *sim.World) {}, redlock.ErrLost},
		"Locker closed": {func(l *redlock.Locker, _ *sim.World) { l.Close() }, redlock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l := open(t, w)
				var lost []error
				returned := false
				h := wrap(t, l, func(rw http.ResponseWriter, r *http.Request) {
					require.NoError(t, r.Context().Err())
					c.lose(l, w)
					awaitEnd(r.Context())
					assert.ErrorIs(t, context.Cause(r.Context()), c.want)
					rw.WriteHeader(http.StatusConflict)
					returned = true
				}, httplock.Lock(redlock.Renew(false)), httplock.OnLost(func(r *http.Request, err error) {
					assert.True(t, returned)
					assert.Equal(t, "x", lockOf(t, r).Name())
					lost = append(lost, err)
				}))
				assert.Equal(t, http.StatusConflict, serve(h, request(t, "x")).Code)
				require.Len(t, lost, 1)
				assert.ErrorIs(t, lost[0], c.want)
			})
		})
	}
}

// TestEndOfTheRequestEndsTheHandlersContext: the lock is released in this case, too.
func TestEndOfTheRequestEndsTheHandlersContext(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		gone := fmt.Errorf("the client has left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		h := wrap(t, open(t, w), func(_ http.ResponseWriter, r *http.Request) {
			assert.Equal(t, time.Second-rtt, took(func() { awaitEnd(r.Context()) }))
			assert.Equal(t, gone, context.Cause(r.Context()))
			assert.True(t, lockOf(t, r).Valid(), "until the handler returns")
		}, httplock.OnLost(func(*http.Request, error) { t.Error("nothing was lost") }))
		serve(h, request(t, "x").WithContext(ctx))
		assert.LessOrEqual(t, holding(w, "x"), 2, "a quorum has confirmed")
		time.Sleep(leg)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestLossNoticedByTheReleaseIsReported: at the release a majority holds another value. The loss is
// reported even if the client has disconnected.
func TestLossNoticedByTheReleaseIsReported(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ctx, leave := context.WithCancel(t.Context())
		var lost error
		h := wrap(t, open(t, w), func(http.ResponseWriter, *http.Request) {
			for _, s := range w.Servers() {
				s.Set("x", "another", time.Hour)
			}
			leave()
		}, httplock.OnLost(func(_ *http.Request, err error) { lost = err }))
		serve(h, request(t, "x").WithContext(ctx))
		assert.ErrorIs(t, lost, redlock.ErrLost)
		assert.Equal(t, 5, holding(w, "x"))
	})
}

// TestHandlerMayReleaseEarly: an early release is not a loss.
func TestHandlerMayReleaseEarly(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		h := wrap(t, open(t, w), func(_ http.ResponseWriter, r *http.Request) {
			assert.NoError(t, lockOf(t, r).Release(context.WithoutCancel(r.Context())))
			awaitEnd(r.Context())
			assert.ErrorIs(t, context.Cause(r.Context()), redlock.ErrReleased)
		}, httplock.OnLost(func(*http.Request, error) { t.Error("nothing was lost") }))
		assert.Equal(t, 200, serve(h, request(t, "x")).Code)
	})
}

// TestHandlerReleasesWithoutReturning: a panic is passed on, and runtime.Goexit is neither a return
// nor a panic.
func TestHandlerReleasesWithoutReturning(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic": func() { panic("broken") },
		"abort": func() { panic(http.ErrAbortHandler) },
		"exit":  runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				var left context.Context
				h := wrap(t, open(t, w), func(_ http.ResponseWriter, r *http.Request) {
					left = r.Context()
					leave()
				})
				r, gone := request(t, "x"), make(chan any)
				go func() {
					defer func() { gone <- recover() }()
					serve(h, r)
					t.Error("it returned")
				}()
				assert.Equal(t, map[string]any{"panic": "broken", "abort": http.ErrAbortHandler}[name], <-gone)
				assert.Error(t, left.Err())
				time.Sleep(leg)
				assert.Zero(t, holding(w, "x"))
			})
		})
	}
}

// TestGoroutineOfAHandlerStopsBeforeTheRelease: its context has ended before the lock is released.
func TestGoroutineOfAHandlerStopsBeforeTheRelease(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		var left context.Context
		var released atomic.Bool
		w.Watch(func(s sim.Step) {
			if s.Op == protocol.OpRelease {
				released.Store(true)
				assert.Error(t, left.Err())
			}
		})
		h := wrap(t, open(t, w), func(_ http.ResponseWriter, r *http.Request) { left = r.Context() })
		serve(h, request(t, "x"))
		assert.True(t, released.Load())
	})
}

// TestRequestWithoutALockPasses: the request passes even if no server answers.
func TestRequestWithoutALockPasses(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		for _, s := range w.Servers() {
			s.Hang()
		}
		for _, skip := range []error{httplock.ErrSkip, fmt.Errorf("a GET: %w", httplock.ErrSkip)} {
			serialise, err := httplock.New(open(t, w), func(*http.Request) (string, error) { return "", skip })
			require.NoError(t, err)
			w := serve(serialise(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, ok := httplock.FromContext(r.Context())
				assert.False(t, ok)
				w.WriteHeader(http.StatusTeapot)
			})), request(t, "x"))
			assert.Equal(t, http.StatusTeapot, w.Code)
		}
	})
}

// TestHandlerGetsTheInnermostLock: both locks of nested middlewares are held.
func TestHandlerGetsTheInnermostLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := open(t, w)
		inner, err := httplock.New(l, func(*http.Request) (string, error) { return "inner", nil })
		require.NoError(t, err)
		ran := false
		serve(wrap(t, l, inner(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			assert.Equal(t, "inner", lockOf(t, r).Name())
			time.Sleep(leg)
			assert.Equal(t, 5, holding(w, "inner"))
			assert.Equal(t, 5, holding(w, "x"))
		})).ServeHTTP), request(t, "x"))
		assert.True(t, ran)
	})
}

// TestFormIsLeftToTheServer: the server removes the form's temporary files from the disk.
func TestFormIsLeftToTheServer(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		var body strings.Builder
		form := multipart.NewWriter(&body)
		require.NoError(t, form.WriteField("field", "value"))
		require.NoError(t, form.Close())
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body.String()))
		r.Header.Set(header, "x")
		r.Header.Set("Content-Type", form.FormDataContentType())

		h := wrap(t, open(t, w), func(_ http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "value", r.FormValue("field"))
		})
		assert.Equal(t, 200, serve(h, r).Code)
		require.NotNil(t, r.MultipartForm)
		assert.Equal(t, []string{"value"}, r.MultipartForm.Value["field"])
	})
}

// TestRoutePatternIsVisibleOutside: middleware that logs or counts requests sees the pattern, even
// if the mux is inside.
func TestRoutePatternIsVisibleOutside(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) {})
		r := request(t, "x")
		r.Method, r.URL.Path = http.MethodGet, "/orders/7"
		assert.Equal(t, 200, serve(wrap(t, open(t, w), mux.ServeHTTP), r).Code)
		assert.Equal(t, "GET /orders/{id}", r.Pattern)
	})
}
