package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/examples/web"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
	"github.com/redquorum/redquorum/redlocktest"
)

const (
	path = "/orders/7/pay"
	name = "order:7"
)

// A site answers requests, by calling pay under the lock of the order.
type site func(t *testing.T, r *http.Request) *http.Response

// A framework makes a site.
type framework func(t *testing.T, l *redlock.Locker, pay func(ctx context.Context)) site

var frameworks = map[string]framework{
	"chi": func(t *testing.T, l *redlock.Locker, pay func(context.Context)) site {
		router := chi.NewRouter()
		router.With(serialise(t, l, func(r *http.Request) string { return chi.URLParam(r, "id") })).
			Post("/orders/{id}/pay", func(_ http.ResponseWriter, r *http.Request) { pay(r.Context()) })
		return serve(router)
	},
	"echo": func(t *testing.T, l *redlock.Locker, pay func(context.Context)) site {
		e := echo.New()
		e.POST("/orders/:id/pay", func(c echo.Context) error {
			pay(c.Request().Context())
			return c.NoContent(http.StatusOK)
		}, echo.WrapMiddleware(serialise(t, l, order)))
		return serve(e)
	},
	"gin": func(t *testing.T, l *redlock.Locker, pay func(context.Context)) site {
		gin.SetMode(gin.ReleaseMode)
		engine := gin.New()
		engine.POST("/orders/:id/pay", web.Gin(serialise(t, l, order)), func(c *gin.Context) { pay(c.Request.Context()) })
		return serve(engine)
	},
	"fiber": func(_ *testing.T, l *redlock.Locker, pay func(context.Context)) site {
		app := fiber.New()
		app.Post("/orders/:id/pay", web.Fiber(l, func(c fiber.Ctx) (string, error) { return "order:" + c.Params("id"), nil }), func(c fiber.Ctx) error {
			pay(c.Context())
			return nil
		})
		return ask(app)
	},
}

// serialise returns the middleware of httplock for orders.
func serialise(t *testing.T, l *redlock.Locker, id func(*http.Request) string) func(http.Handler) http.Handler {
	t.Helper()
	m, err := httplock.New(l, func(r *http.Request) (string, error) { return "order:" + id(r), nil })
	require.NoError(t, err)
	return m
}

// order returns the order that a path names: not all frameworks have told net/http what they found.
func order(r *http.Request) string { return r.URL.Path[len("/orders/") : len(r.URL.Path)-len("/pay")] }

func serve(h http.Handler) site {
	return func(_ *testing.T, r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
}

func ask(app *fiber.App) site {
	return func(t *testing.T, r *http.Request) *http.Response {
		t.Helper()
		answer, err := app.Test(r, fiber.TestConfig{Timeout: 0})
		require.NoError(t, err)
		return answer
	}
}

// start returns the Lockers of two machines.
func start(t *testing.T) (first, second *redlock.Locker) {
	t.Helper()
	servers := redlocktest.Start(t)
	opts := []redlock.LockerOption{redlock.TTL(time.Minute), redlock.NodeTimeout(10 * time.Second)}
	return servers.Locker(opts...), servers.Locker(opts...)
}

func request(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
}

// each runs test with each framework.
func each(t *testing.T, test func(t *testing.T, make framework)) {
	t.Parallel()
	for name, make := range frameworks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make)
		})
	}
}

// TestTheHandlerHoldsItsLock, and it is free behind the answer.
func TestTheHandlerHoldsItsLock(t *testing.T) {
	each(t, func(t *testing.T, make framework) {
		first, second := start(t)
		ran := false
		answer := make(t, first, func(ctx context.Context) {
			ran = true
			_, err := second.TryAcquire(ctx, name)
			assert.ErrorIs(t, err, redlock.ErrHeld)
		})(t, request(t))
		assert.True(t, ran)
		assert.Equal(t, http.StatusOK, answer.StatusCode)
		_, err := second.TryAcquire(t.Context(), name)
		assert.NoError(t, err)
	})
}

// TestARequestWithoutItsLockIsAnswered, and the handler does not run.
func TestARequestWithoutItsLockIsAnswered(t *testing.T) {
	each(t, func(t *testing.T, make framework) {
		first, second := start(t)
		_, err := second.TryAcquire(t.Context(), name)
		require.NoError(t, err)
		answer := make(t, first, func(context.Context) { assert.Fail(t, "the handler runs") })(t, request(t))
		assert.Equal(t, http.StatusLocked, answer.StatusCode)
		assert.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
		assert.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
	})
}

func TestALossEndsTheHandlersContext(t *testing.T) {
	each(t, func(t *testing.T, make framework) {
		first, _ := start(t)
		var cause error
		make(t, first, func(ctx context.Context) {
			go first.Close()
			select {
			case <-ctx.Done():
				cause = context.Cause(ctx)
			case <-time.After(time.Minute):
			}
		})(t, request(t))
		assert.ErrorIs(t, cause, redlock.ErrClosed)
	})
}

// TestFibersAdaptorProtectsNothing: the handler runs when the middleware has released the lock. If
// this test fails, Fiber has changed, and httplock can be used with it.
func TestFibersAdaptorProtectsNothing(t *testing.T) {
	t.Parallel()
	first, second := start(t)
	app := fiber.New()
	free := false
	app.Post("/orders/:id/pay", adaptor.HTTPMiddleware(serialise(t, first, order)), func(c fiber.Ctx) error {
		_, err := second.TryAcquire(c.Context(), name)
		free = err == nil
		return nil
	})
	ask(app)(t, request(t))
	assert.True(t, free)
}

// TestATimeoutGoesOutside: a handler of time-outs answers while its own handler runs on, so inside httplock it
// lets the lock be released meanwhile.
func TestATimeoutGoesOutside(t *testing.T) {
	t.Parallel()
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, 10*time.Second, "") }
	inEcho := func(pay http.HandlerFunc, all ...func(http.Handler) http.Handler) site {
		e := echo.New()
		var wrapped []echo.MiddlewareFunc
		for _, m := range all {
			wrapped = append(wrapped, echo.WrapMiddleware(m))
		}
		e.POST("/orders/:id/pay", echo.WrapHandler(pay), wrapped...)
		return serve(e)
	}
	for name, of := range map[string]struct {
		make   func(serialise func(http.Handler) http.Handler, pay http.HandlerFunc) site
		isHeld bool
	}{
		"net/http, inside": {func(serialise func(http.Handler) http.Handler, pay http.HandlerFunc) site {
			return serve(serialise(timeout(pay)))
		}, false},
		"net/http, outside": {func(serialise func(http.Handler) http.Handler, pay http.HandlerFunc) site {
			return serve(http.TimeoutHandler(serialise(http.HandlerFunc(pay)), 10*time.Second, ""))
		}, true},
		"echo, inside": {func(serialise func(http.Handler) http.Handler, pay http.HandlerFunc) site {
			return inEcho(pay, serialise, timeout)
		}, false},
		"echo, outside": {func(serialise func(http.Handler) http.Handler, pay http.HandlerFunc) site {
			return inEcho(pay, timeout, serialise)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := start(t)
			ctx, end := context.WithCancel(t.Context())
			work, ended := make(chan struct{}), make(chan struct{})
			answer := of.make(serialise(t, first, order), func(http.ResponseWriter, *http.Request) {
				defer close(ended)
				end() // for a handler of time-outs that is as the end of its time
				<-work
			})(t, request(t).WithContext(ctx))
			assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
			_, err := second.TryAcquire(t.Context(), "order:7")
			assert.Equal(t, of.isHeld, errors.Is(err, redlock.ErrHeld), "%v", err)
			close(work)
			<-ended
		})
	}
}

// TestAPanicLeavesTheRequestAsItWas, for a Recovery that answers it.
func TestAPanicLeavesTheRequestAsItWas(t *testing.T) {
	t.Parallel()
	first, _ := start(t)
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	after := context.Canceled
	engine.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { after = c.Request.Context().Err() }))
	engine.POST("/orders/:id/pay", web.Gin(serialise(t, first, order)), func(*gin.Context) { panic("oops") })
	serve(engine)(t, request(t))
	assert.NoError(t, after)
}

func TestARequestOfFiberNeedsAName(t *testing.T) {
	t.Parallel()
	first, _ := start(t)
	app := fiber.New()
	app.Post("/orders/:id/pay", web.Fiber(first, func(fiber.Ctx) (string, error) { return "", errors.New("no order") }),
		func(fiber.Ctx) error { assert.Fail(t, "the handler runs"); return nil })
	assert.Equal(t, http.StatusBadRequest, ask(app)(t, request(t)).StatusCode)
}
