// Package redlockotel exports the acquisitions of a redlock.Locker as OpenTelemetry traces, and
// counts its events as metrics.
//
//	telemetry, err := redlockotel.New()
//	locker, err := redlock.New(nodes, redlock.Observe(telemetry))
//
// # Traces
//
// Each TryAcquire, Acquire or Do is a span redlock.acquire, a child of the span in its context. It
// lasts from the call to its return or, for Do, to the acquisition. It has the following
// attributes. Its status is Error if the lock was not acquired, unless the reason is another
// holder:
//
//	redlock.name      name of the lock; see WithoutNames
//	redlock.outcome   acquired, held (by another), no_quorum (an outage), canceled, timeout, closed, other
//	redlock.votes     number of nodes that granted the lock; after a failure, in the last try
//	redlock.permit    number of the permit; see redlock.Permits
//	redlock.attempts  tries; zero if another caller of the process handed the lock over
//	error.type        same as the outcome, with the status Error
//
// Each reply of a node is a child span redlock.vote, from the request to the reply. It may end long
// after its parent, because no caller waits for a node whose vote is not needed. The releases of
// lost attempts are included. There are at most 128 such spans per acquisition, which may try for
// hours. The attribute redlock.votes_omitted counts the other replies that had arrived when it
// ended.
//
//	db.system.name    redis
//	db.operation.name acquire, raise (a fencing token), release; the commands differ by server
//	redlock.op        the same
//	redlock.node      name of the node
//	redlock.outcome   granted, refused, failed, unknown (the last two have the status Error)
//	redlock.fault     kind of fault, as in the metrics
//	error.type        the same
//	server.address    from a node name of the form host:port, otherwise the whole name
//	server.port
//
// Attributes without the prefix redlock are defined by OpenTelemetry's semantic conventions 1.43.0.
// Traces and metrics have the schema URL of that version.
//
// Work under a lock is a sibling of redlock.acquire and not its child, because the lock's context
// has the caller's span. If the lock is lost, the caller's span gets an event redlock.lost. If that
// span has ended, or there is no such span, the loss is recorded as a span redlock.lost of its own,
// with redlock.name and the status Error.
//
// # Metrics
//
//	redlock.acquisitions    {acquisition}  calls, by redlock.outcome
//	redlock.wait.duration   s              from such a call to the acquisition (histogram)
//	redlock.hold.duration   s              from the acquisition to the end of the lock (histogram)
//	redlock.locks.held      {lock}         locks currently held by this process
//	redlock.waiters         {acquisition}  acquisitions in progress in this process
//	redlock.locks.lost      {lock}         locks that ended before their release
//	redlock.extensions      {extension}    successful extensions, including renewals
//	redlock.releases        {release}      by redlock.outcome: confirmed, unconfirmed, lost, closed
//	redlock.votes           {vote}         by redlock.node, redlock.op and redlock.outcome
//	redlock.reply.duration  s              from a request to a node's reply, by redlock.node (histogram)
//	redlock.node.errors     {error}        by redlock.node and redlock.fault
//
// They are the same metrics as in contrib/prometheus, whose documentation explains the outcomes and
// faults. All attributes have few fixed values, except the name of the node. Metrics never contain
// the names of locks, their values or fencing tokens.
package redlockotel
