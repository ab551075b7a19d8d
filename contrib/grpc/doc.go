// Package redlockgrpc runs calls of a gRPC server one at a time. Its interceptors run a handler
// while it holds the lock that the call names. The lock works across all machines that receive
// calls.
//
//	serialise, err := redlockgrpc.New(locker, func(ctx context.Context, method string, request any) (string, error) {
//		if r, ok := request.(interface{ GetOrderId() string }); ok {
//			return "order:" + r.GetOrderId(), nil
//		}
//		return "", redlockgrpc.ErrSkip // the call needs no lock
//	})
//	server := grpc.NewServer(grpc.UnaryInterceptor(serialise.Unary), grpc.StreamInterceptor(serialise.Stream))
//
// # Answers to calls that do not get their lock
//
// The handler does not run. The client gets a status whose message names neither the lock nor a
// server, with google.rpc.RetryInfo if the time to wait is known:
//
//	InvalidArgument             the key function failed, or returned a name that redlock refuses
//	Aborted                     another call holds the lock
//	Internal                    retrying does not help: the key does not hold a lock, or the servers
//	                            lack rights or commands
//	Unavailable                 too few nodes answer, or they are in quarantine; the Locker was closed
//	Canceled, DeadlineExceeded  the call's context has ended
//
// If the key function returns an error with a status, as from status.Error, the client gets that
// status.
//
// # While the handler runs
//
// The context of the handler has the values of the call's context. It ends when the call's context
// ends, and when the lock ends. Then context.Cause matches redlock.ErrLost, or redlock.ErrClosed if
// the Locker was closed. The handler must then stop its work, and should fence writes that it
// cannot undo (redlock.Fenced, FromContext, package fence). If the lock was lost, the work may have
// overlapped with the work of another call. The client then gets Aborted, or Unavailable if the
// Locker was closed, provided that the handler returned no error, the error of its context, or the
// cause of that error. Other errors of the handler are passed on.
//
// The lock is released when the handler returns, panics or calls runtime.Goexit, and before the
// client gets the answer. It is released even if the client disconnects.
//
// # Streams
//
// A stream is one call: it holds its lock until its handler returns. Its messages are not known
// before that, so the key function gets no request. redlock.MaxHold limits the time that a stream
// can hold the lock.
//
// # Names
//
// The sender of the call chooses the name. Check in an earlier interceptor that the sender may use
// it, and begin the name with its kind. Locks are not reentrant: a handler that calls the server
// for the name that it holds, and waits for the answer, waits for itself.
package redlockgrpc
