// Package redlockgrpc has calls of a gRPC server run one at a time: a handler behind its interceptors
// runs while it holds the lock that the call names, on whichever machine it was received.
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
// server, with google.rpc.RetryInfo if it is known how long to wait:
//
//	InvalidArgument             the key function failed, or made a name that redlock refuses
//	Aborted                     another call holds the lock
//	Internal                    no try later helps: the key is no lock's, or the servers lack rights or commands
//	Unavailable                 too few nodes answer, or they are in quarantine; the Locker was closed
//	Canceled, DeadlineExceeded  the call's context has ended
//
// A key function that returns an error with a status of its own, as status.Error makes it, chooses
// the answer.
//
// # While the handler runs
//
// Its context has the values that it came with, and ends when it did, and also when the lock ends:
// context.Cause is then one that matches redlock.ErrLost, or redlock.ErrClosed if the Locker was
// closed. What the handler does to the outside must stop then, and what cannot be undone should be
// fenced (redlock.Fenced, FromContext, package fence). If the lock was lost and the handler returns no
// error, its context's error or the cause of that, the client gets Aborted, or Unavailable if the
// Locker was closed: the work may have run beside another's. Other errors of the handler stay.
//
// The lock is released when the handler returns, panics or calls runtime.Goexit, and before the
// client has the answer. A client that goes away does not keep it from being released.
//
// # Streams
//
// A stream is one call: it holds its lock until its handler returns, and its messages are not known
// before that, so the key function gets no request. redlock.MaxHold caps what a stream can hold.
//
// # What the user owes
//
// A name is chosen by the sender of the call: check whether they may in an interceptor before this
// one, and begin the name with what kind of thing it is. Locks are not reentrant: a handler that calls
// the server for the name that it holds, and waits for the answer, waits in vain.
package redlockgrpc
