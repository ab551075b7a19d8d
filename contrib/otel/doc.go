// Package redlockotel gives a redlock.Locker's acquisitions as OpenTelemetry traces, and what it
// does as metrics.
//
//	telemetry, err := redlockotel.New()
//	locker, err := redlock.New(nodes, redlock.Observe(telemetry))
//
// # Traces
//
// Each TryAcquire, Acquire or Do is a span redlock.acquire below the span of the context that it
// was given, from the call to its return or, for Do, to the lock. It has these attributes, and the
// status Error if there is no lock for another reason than that it is held:
//
//	redlock.name      the lock's name; see WithoutNames
//	redlock.outcome   acquired, held (by another), no_quorum (an outage), canceled, timeout, closed, other
//	redlock.votes     the nodes that had granted it, or, of the last try, too few
//	redlock.permit    which of several permits it is; see redlock.Permits
//	redlock.attempts  tries; zero if the lock was handed over by another caller of the process
//	error.type        the outcome again, with the status Error
//
// Below it each reply of a node is a span redlock.vote, from the request to the reply. It may end
// long after its parent: a node whose vote is not needed is not waited for. Releases of what a try
// had taken in vain are among them. There are at most 128 for one acquisition, which may
// try for hours; the attribute redlock.votes_omitted then counts the others that were there when it
// ended.
//
//	db.system.name    redis
//	db.operation.name acquire, raise (a fencing token), release: not the commands, which differ by server
//	redlock.op        the same
//	redlock.node      the node's name
//	redlock.outcome   granted, refused, failed, unknown (the last two have the status Error)
//	redlock.fault     the kind of fault, as in the metrics
//	error.type        the same
//	server.address    where the node's name is host:port, or the whole name
//	server.port
//
// Attributes that do not begin with redlock are those of OpenTelemetry's semantic conventions 1.43.0,
// whose schema URL is that of the traces and metrics.
//
// Work under a lock is not below redlock.acquire but beside it: the lock's context has the caller's
// span. If the lock is lost, that span gets an event redlock.lost. If that span has ended by then, or
// there is none, the loss is a span redlock.lost of its own, with redlock.name and the status Error.
//
// # Metrics
//
//	redlock.acquisitions    {acquisition}  calls, by redlock.outcome
//	redlock.wait.duration   s              from such a call to its lock (histogram)
//	redlock.hold.duration   s              from there to the end of the lock (histogram)
//	redlock.locks.held      {lock}         by this process, now
//	redlock.waiters         {acquisition}  under way in this process, now
//	redlock.locks.lost      {lock}         before they were released
//	redlock.extensions      {extension}    that succeeded, renewals too
//	redlock.releases        {release}      by redlock.outcome: confirmed, unconfirmed, lost, closed
//	redlock.votes           {vote}         by redlock.node, redlock.op and redlock.outcome
//	redlock.reply.duration  s              from a request to a node's answer, by redlock.node (histogram)
//	redlock.node.errors     {error}        by redlock.node and redlock.fault
//
// They are those of contrib/prometheus, whose documentation explains the outcomes and faults. The
// only attribute of theirs that is not from a small fixed set is the node's name. The names of
// locks, their values and fencing tokens are in no metric.
package redlockotel
