package redlockgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	redlockgrpc "github.com/redquorum/redquorum/contrib/grpc"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// each runs test for both kinds of calls.
func each(t *testing.T, test func(t *testing.T, w *sim.World, kind string)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []string{"unary", "stream"} {
		t.Run(kind, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *sim.World) { test(t, w, kind) })
		})
	}
}

func TestOneCallRunsAtATime(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		first, second := serve(t, w, byName)[kind], serve(t, w, byName)[kind]
		patient := serve(t, w, byName, redlockgrpc.Wait(time.Minute))[kind]
		impatient := serve(t, w, byName, redlockgrpc.Wait(time.Second))[kind]
		done := make(chan error)
		require.NoError(t, first(t.Context(), func(ctx context.Context) error {
			lock, ok := redlockgrpc.FromContext(ctx)
			require.True(t, ok)
			assert.Equal(t, name, lock.Name())
			s := is(t, second(ctx, never(t)), codes.Aborted)
			assert.InDelta(t, ttl.Seconds(), delay(s), 1)
			s = is(t, impatient(ctx, never(t)), codes.Aborted)
			assert.Positive(t, delay(s))
			go func() { done <- patient(t.Context(), func(context.Context) error { return nil }) }()
			time.Sleep(20 * time.Second)
			return nil
		}))
		require.NoError(t, <-done)
		assert.Zero(t, sim.Holding(w, name))
	})
}

// TestLossEndsTheHandler: the client's status shows that the work may have overlapped.
func TestLossEndsTheHandler(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		serve := serve(t, w, byName)[kind]
		var cause error
		lose := func(result error) func(context.Context) error {
			return func(ctx context.Context) error {
				for _, s := range w.Servers() {
					s.Del(name)
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				cause = context.Cause(ctx)
				return result
			}
		}
		is(t, serve(t.Context(), lose(nil)), codes.Aborted)
		require.ErrorIs(t, cause, redlock.ErrLost)
		is(t, serve(t.Context(), lose(status.Error(codes.NotFound, "no such order"))), codes.NotFound)
	})
}

// TestHandlerStoppedByALossIsAborted: the error that the handler returns does not matter, and the
// client does not see it.
func TestHandlerStoppedByALossIsAborted(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		for _, result := range []func(context.Context) error{
			context.Context.Err,
			context.Cause,
			func(ctx context.Context) error { return fmt.Errorf("pay: %w", ctx.Err()) },
			func(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }, // status of a call made by the handler
		} {
			calls, l := serveBy(t, w, byName)
			end := map[codes.Code]func(){
				codes.Aborted: func() {
					for _, s := range w.Servers() {
						s.Del(name)
					}
				},
				codes.Unavailable: func() { l.Close() },
			}
			for _, want := range []codes.Code{codes.Aborted, codes.Unavailable} {
				err := calls[kind](t.Context(), func(ctx context.Context) error {
					go end[want]()
					<-ctx.Done()
					return result(ctx)
				})
				assert.NotContains(t, is(t, err, want).Message(), "lock lost:")
			}
		}
	})
}

func TestOutageIsUnavailable(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		serve := serve(t, w, byName, redlockgrpc.Wait(time.Minute))[kind]
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		is(t, serve(t.Context(), never(t)), codes.Unavailable)
		for _, s := range w.Servers() {
			s.Resume()
		}
		require.NoError(t, serve(t.Context(), func(context.Context) error { return nil }))
	})
}

// TestFailOpenPassesInAnOutageOnly: the handler can see that it has no lock, and a held lock is
// still refused.
func TestFailOpenPassesInAnOutageOnly(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		pay := serve(t, w, byName, redlockgrpc.FailOpen())[kind]
		require.NoError(t, pay(t.Context(), func(ctx context.Context) error {
			is(t, serve(t, w, byName, redlockgrpc.FailOpen())[kind](t.Context(), never(t)), codes.Aborted)
			return redlockgrpc.Unlocked(ctx)
		}))
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		ran := false
		require.NoError(t, pay(t.Context(), func(ctx context.Context) error {
			ran = true
			require.ErrorIs(t, redlockgrpc.Unlocked(ctx), redlock.ErrNoQuorum)
			_, locked := redlockgrpc.FromContext(ctx)
			assert.False(t, locked)
			return nil
		}))
		assert.True(t, ran)
		for _, s := range w.Servers()[:3] {
			s.Resume()
			s.SetWrongType(name)
		}
		is(t, pay(t.Context(), never(t)), codes.Internal)
	})
}

func TestCancelledCallLeavesNoLock(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		first := serve(t, w, byName)[kind]
		second := serve(t, w, byName, redlockgrpc.Wait(time.Hour))[kind]
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, first(ctx, func(ctx context.Context) error {
			waiting, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			is(t, second(waiting, never(t)), codes.DeadlineExceeded)
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}), context.Canceled)
		assert.Zero(t, sim.Holding(w, name), "it is released before the client has the answer")
		is(t, first(ctx, never(t)), codes.Canceled)
	})
}

func TestHandlerReleasesWithoutReturning(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		serve := serve(t, w, byName)[kind]
		assert.PanicsWithValue(t, "oops", func() { serve(t.Context(), func(context.Context) error { panic("oops") }) })
		assert.Zero(t, sim.Holding(w, name))
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			serve(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-gone
		assert.Zero(t, sim.Holding(w, name))
	})
}

func TestKeyDecides(t *testing.T) {
	each(t, func(t *testing.T, w *sim.World, kind string) {
		key := func(s string, err error) redlockgrpc.Key {
			return func(_ context.Context, method string, request any) (string, error) {
				assert.Equal(t, "/shop.Orders/Pay", method)
				assert.Equal(t, kind == "unary", request == name)
				return s, err
			}
		}
		is(t, serve(t, w, key("", nil))[kind](t.Context(), never(t)), codes.InvalidArgument)
		is(t, serve(t, w, key("", errors.New(name+" is secret")))[kind](t.Context(), never(t)), codes.InvalidArgument)
		is(t, serve(t, w, key("", status.Error(codes.PermissionDenied, "")))[kind](t.Context(), never(t)), codes.PermissionDenied)
		ran := false
		require.NoError(t, serve(t, w, key("", redlockgrpc.ErrSkip))[kind](t.Context(), func(ctx context.Context) error {
			_, locked := redlockgrpc.FromContext(ctx)
			assert.False(t, locked)
			ran = true
			return nil
		}))
		assert.True(t, ran)
	})
}

func TestInvalidInterceptorIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		l := sim.Locker(t, w.NewClient(1))
		for want, make := range map[string]func() (*redlockgrpc.Interceptor, error){
			"make one with redlock.New": func() (*redlockgrpc.Interceptor, error) { return redlockgrpc.New(nil, byName) },
			"the key function is nil":   func() (*redlockgrpc.Interceptor, error) { return redlockgrpc.New(l, nil) },
			"an Option was zero":        func() (*redlockgrpc.Interceptor, error) { return redlockgrpc.New(l, byName, redlockgrpc.Option{}) },
			"Wait(-1ns)":                func() (*redlockgrpc.Interceptor, error) { return redlockgrpc.New(l, byName, redlockgrpc.Wait(-1)) },
			"TTL": func() (*redlockgrpc.Interceptor, error) {
				return redlockgrpc.New(l, byName, redlockgrpc.Lock(redlock.TTL(-1)))
			},
		} {
			_, err := make()
			require.ErrorContains(t, err, want)
		}
		i, err := redlockgrpc.New(l, byName)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		err = i.Stream(nil, stream{ctx: t.Context()}, infoOfStream, nil)
		is(t, err, codes.Unavailable)
	})
}
