// Package redlockprom counts what a redlock.Locker does, for Prometheus.
//
//	metrics, err := redlockprom.New(prometheus.DefaultRegisterer)
//	locker, err := redlock.New(nodes, redlock.Observe(metrics))
//
// redlock serve exports the same at /metrics, without this package.
//
// # Metrics
//
//	redlock_acquisitions_total{outcome}      calls of TryAcquire, Acquire and Do, by how they ended
//	redlock_wait_seconds                     from such a call to its lock (histogram)
//	redlock_hold_seconds                     from there to the end of the lock (histogram)
//	redlock_locks_held                       by this process, now (gauge)
//	redlock_waiters                          acquisitions under way in this process, now, without candidates
//	                                         of elections (gauge)
//	redlock_locks_lost_total                 locks that were lost before they were released
//	redlock_extensions_total                 extensions and renewals that succeeded
//	redlock_releases_total{outcome}          releases, by how they ended
//	redlock_votes_total{node,op,outcome}     replies of a node
//	redlock_reply_seconds{node}              from a request to a node's answer, be it yes or no (histogram)
//	redlock_node_errors_total{node,kind}     replies that were faults
//
// The outcome of an acquisition is acquired, held (by another), no_quorum (an outage), canceled or
// timeout (the caller's context), closed or other (such as an Adopt of a lock that is gone); that
// of a release is confirmed, unconfirmed (by a quorum; the keys expire by themselves), lost (it
// was not held any more, and is counted as a loss, too) or closed (released by the Locker's
// Close). A vote is granted, refused, failed or unknown. The kinds of faults are quarantine (the
// node may have forgotten locks), settings (its clients were set up for another number of nodes),
// same_server, wrong_type (a key that is no lock), denied (password or ACL), replica, loading,
// overload, refused (a connection), timeout, disconnected, closed and other.
//
// # Cardinality
//
// The label node is the node's name: its address, or what was given to pool.FromDial. All the other
// labels have few fixed values. So there are 50 series for each node at most, and 60 more. The
// names of locks, their values and fencing tokens are never exported: there is no bound to how many
// there are, and logs and traces have the names.
package redlockprom
