package redlockgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	redlockgrpc "github.com/redquorum/redquorum/contrib/grpc"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl  = sim.TTL
	name = "order:7"
)

// simulate runs test in virtual time.
func simulate(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.Simulate(t, 5, test)
}

// A call runs a handler as the server does for a call of one kind.
type call func(ctx context.Context, handler func(ctx context.Context) error) error

// serve returns the interceptors of a new machine, by kind of call.
func serve(t *testing.T, w *sim.World, key redlockgrpc.Key, opts ...redlockgrpc.Option) map[string]call {
	t.Helper()
	calls, _ := serveBy(t, w, key, opts...)
	return calls
}

// serveBy does the same as serve, and also returns the Locker.
func serveBy(t *testing.T, w *sim.World, key redlockgrpc.Key, opts ...redlockgrpc.Option) (map[string]call, *redlock.Locker) {
	t.Helper()
	l := sim.Locker(t, w.NewClient(1), redlock.TTL(ttl))
	i, err := redlockgrpc.New(l, key, opts...)
	require.NoError(t, err)
	return map[string]call{
		"unary": func(ctx context.Context, handler func(context.Context) error) error {
			response, err := i.Unary(ctx, name, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Pay"}, func(ctx context.Context, request any) (any, error) {
				return request, handler(ctx)
			})
			if err == nil {
				assert.Equal(t, name, response)
			}
			return err
		},
		"stream": func(ctx context.Context, handler func(context.Context) error) error {
			return i.Stream("server", stream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/shop.Orders/Pay"}, func(server any, s grpc.ServerStream) error {
				assert.Equal(t, "server", server)
				return handler(s.Context())
			})
		},
	}, l
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

func byName(context.Context, string, any) (string, error) { return name, nil }

// never is a handler for calls that do not get their lock.
func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error { assert.Fail(t, "the handler runs"); return nil }
}

// is fails the test unless err is a status with the code and without names.
func is(t *testing.T, err error, code codes.Code) *status.Status {
	t.Helper()
	s, ok := status.FromError(err)
	require.True(t, ok)
	assert.Equal(t, code, s.Code(), "%v", err)
	assert.NotContains(t, s.Message(), name)
	return s
}

// delay returns the delay in the RetryInfo of a status, and zero without one.
func delay(s *status.Status) (seconds float64) {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration().Seconds()
		}
	}
	return 0
}
