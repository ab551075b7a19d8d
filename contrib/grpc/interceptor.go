package redlockgrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/redquorum/redquorum/redlock"
)

// ErrSkip lets a call pass without a lock. A key function returns or wraps it.
var ErrSkip = errors.New("redlockgrpc: the call needs no lock")

// A Key returns the name of the lock that a call needs. method is the full name,
// "/package.Service/Method". request is nil for a stream.
type Key func(ctx context.Context, method string, request any) (string, error)

// An Interceptor serialises calls. Several servers may share one. It is safe for concurrent use if
// its Key is.
type Interceptor struct {
	locker *redlock.Locker
	key    Key
	wait   time.Duration
	opts   []redlock.Option

	failOpen bool
}

// New returns an Interceptor. It returns an error for an invalid argument, and sends nothing to the
// nodes. The caller still owns the Locker, and closes it after the server's GracefulStop.
func New(locker *redlock.Locker, key Key, opts ...Option) (*Interceptor, error) {
	if locker == nil {
		return nil, errors.New("redlockgrpc: the Locker is nil: make one with redlock.New")
	}
	if key == nil {
		return nil, errors.New("redlockgrpc: the key function is nil: pass one that returns the name of the lock that a call needs")
	}
	i := &Interceptor{locker: locker, key: key}
	for _, o := range opts {
		if o.apply == nil {
			return nil, errors.New("redlockgrpc: an Option was zero: make it with one of the package's functions")
		}
		o.apply(i)
	}
	if i.wait < 0 {
		return nil, fmt.Errorf("redlockgrpc: option Wait(%v): must not be negative: 0 tries once", i.wait)
	}
	if err := locker.Check(i.opts...); err != nil {
		return nil, fmt.Errorf("redlockgrpc: %w", err)
	}
	return i, nil
}

// An Option changes a default of New.
type Option struct{ apply func(*Interceptor) }

// Wait lets a call wait up to d for a held lock, in line with other calls of the Locker. The wait
// ends early if the call's context ends, or if an outage exceeds redlock.Patience. After d the
// answer distinguishes contention from an outage. Default 0: one try.
func Wait(d time.Duration) Option { return Option{func(i *Interceptor) { i.wait = d }} }

// Lock sets options of the locks, such as redlock.TTL, redlock.Fenced or redlock.MaxHold. The
// options of several Lock accumulate.
func Lock(opts ...redlock.Option) Option {
	return Option{func(i *Interceptor) { i.opts = append(i.opts, opts...) }}
}

// FailOpen lets a call run without its lock while too few nodes answer, instead of failing with
// Unavailable. It is for work that is better done twice than not at all. Default: no call runs
// without its lock. During the outage calls do not exclude each other, and do not exclude calls
// that got a lock before it. Unlocked reports this to the handler.
//
// An outage is known after the time of Wait or redlock.Patience, so with Wait both must be well
// below the clients' deadlines: a call whose deadline expires first is not run. A call is still
// refused if its lock is held, or if waiting cannot help (redlock.QuorumError.Permanent).
func FailOpen() Option { return Option{func(i *Interceptor) { i.failOpen = true }} }

type unlockedKey struct{}

// Unlocked returns the reason a handler runs without its lock: the error of the acquisition, for
// logs. ctx is the handler's context, or derived from it. Unlocked returns nil for a handler that
// has its lock or needs none.
func Unlocked(ctx context.Context) error {
	err, _ := ctx.Value(unlockedKey{}).(error)
	return err
}

// isOutage reports whether an outage is the only reason the call did not get its lock.
func isOutage(ctx context.Context, err error) bool {
	var vote *redlock.QuorumError
	return ctx.Err() == nil && errors.As(err, &vote) && errors.Is(vote.Kind(), redlock.ErrNoQuorum) && !vote.Permanent()
}

// Unary is a grpc.UnaryServerInterceptor, for grpc.UnaryInterceptor and ChainUnaryInterceptor.
func (i *Interceptor) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	err = i.run(ctx, info.FullMethod, request, func(ctx context.Context) error {
		var err error
		response, err = handler(ctx, request)
		return err
	})
	return response, err
}

// Stream is a grpc.StreamServerInterceptor, for grpc.StreamInterceptor and ChainStreamInterceptor.
func (i *Interceptor) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return i.run(stream.Context(), info.FullMethod, nil, func(ctx context.Context) error {
		return handler(server, &lockedStream{stream, ctx})
	})
}

// A lockedStream is a stream whose context ends with its lock.
type lockedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *lockedStream) Context() context.Context { return s.ctx }

// run runs the handler under the lock of the call.
func (i *Interceptor) run(ctx context.Context, method string, request any, handler func(context.Context) error) error {
	name, err := i.key(ctx, method, request)
	switch {
	case errors.Is(err, ErrSkip):
		return handler(ctx)
	case err != nil:
		return keyError(err)
	}
	lock, err := i.acquire(ctx, name)
	switch {
	case i.failOpen && isOutage(ctx, err):
		return handler(context.WithValue(ctx, unlockedKey{}, err))
	case err != nil:
		return answer(ctx, err)
	}
	return hold(ctx, lock, handler)
}

func (i *Interceptor) acquire(ctx context.Context, name string) (*redlock.Lock, error) {
	wait := redlock.Retries(0)
	if i.wait > 0 {
		wait = redlock.Wait(i.wait)
	}
	return i.locker.Acquire(ctx, name, append([]redlock.Option{wait}, i.opts...)...)
}

type contextKey struct{}

// FromContext returns the lock under which a handler runs. ctx is the handler's context, or derived
// from it. False means that there is no lock. The interceptor releases the lock.
func FromContext(ctx context.Context) (*redlock.Lock, bool) {
	lock, ok := ctx.Value(contextKey{}).(*redlock.Lock)
	return lock, ok
}

// hold runs the handler, and releases the lock even if the handler panics or calls runtime.Goexit.
func hold(ctx context.Context, lock *redlock.Lock, handler func(context.Context) error) (err error) {
	inner, cancel := lock.Bind(context.WithValue(ctx, contextKey{}, lock))
	defer func() {
		cancel() // called first, so that goroutines left by the handler stop before the release
		ended := lock.Release(context.WithoutCancel(ctx))
		switch {
		case !isOfEnd(ctx, err):
		case errors.Is(ended, redlock.ErrClosed):
			err = status.Error(codes.Unavailable, "The service was stopped while the call ran. It may have run at the same time as another.")
		case errors.Is(ended, redlock.ErrLost):
			err = status.Error(codes.Aborted, "The lock was lost while the call ran. It may have run at the same time as another.")
		}
	}()
	return handler(inner)
}

// isOfEnd reports whether the handler's result only reflects the end of its lock: the handler did
// not notice the end, or it returned the error of its context, or the status of a call that was
// cancelled with the context. ctx is the context of the call.
func isOfEnd(ctx context.Context, err error) bool {
	switch {
	case err == nil, errors.Is(err, redlock.ErrLost), errors.Is(err, redlock.ErrClosed):
		return true
	}
	return ctx.Err() == nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled)
}

// keyError returns the answer to a call that names no lock.
func keyError(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.InvalidArgument, "The call does not name anything that can be locked.")
}

// answer returns the answer to a call that did not get its lock. The answer omits the error's
// text, because it names locks and servers.
func answer(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return status.FromContextError(ctx.Err()).Err()
	}
	var vote *redlock.QuorumError
	var left time.Duration
	if errors.As(err, &vote) {
		left = max(0, vote.Remaining) // NoTTL is negative
		err = vote.Kind()
	}
	var s *status.Status
	switch {
	case errors.Is(err, redlock.ErrHeld):
		s = status.New(codes.Aborted, "Another call is working on this. Try again later.")
	case vote != nil && vote.Permanent():
		s = status.New(codes.Internal, "This cannot be worked on until an operator has repaired the service.")
	case vote != nil, errors.Is(err, redlock.ErrClosed):
		s = status.New(codes.Unavailable, "This cannot be worked on at the moment. Try again later.")
	default:
		return keyError(errors.New("a name that redlock refuses")) // New has checked the options
	}
	if left > 0 {
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(left)}); err == nil {
			s = detailed
		}
	}
	return s.Err()
}
