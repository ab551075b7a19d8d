// Package redlockprom counts the events of a redlock.Locker for Prometheus.
//
//	metrics, err := redlockprom.New(prometheus.DefaultRegisterer)
//	locker, err := redlock.New(nodes, redlock.Observe(metrics))
//
// redlock serve exports the same metrics at /metrics, without this package.
//
// # Metrics
//
//	redlock_acquisitions_total{outcome}      calls of TryAcquire, Acquire and Do, by outcome
//	redlock_wait_seconds                     from such a call to the acquisition (histogram)
//	redlock_hold_seconds                     from the acquisition to the end of the lock (histogram)
//	redlock_locks_held                       locks currently held by this process (gauge)
//	redlock_waiters                          acquisitions in progress in this process, without
//	                                         candidates of elections (gauge)
//	redlock_locks_lost_total                 locks that ended before their release
//	redlock_extensions_total                 successful extensions and renewals
//	redlock_releases_total{outcome}          releases, by outcome
//	redlock_votes_total{node,op,outcome}     replies of a node
//	redlock_reply_seconds{node}              from a request to a node's grant or refusal (histogram)
//	redlock_node_errors_total{node,kind}     replies that were faults
//
// Outcomes of an acquisition:
//
//   - acquired
//   - held by another
//   - no_quorum: an outage
//   - canceled or timeout, by the caller's context
//   - closed
//   - other, for example an Adopt of a lock that no longer exists
//
// Outcomes of a release:
//
//   - confirmed
//   - unconfirmed by a quorum; the keys expire
//   - lost: the lock was not held any longer; it also counts as a loss
//   - closed: released by the Locker's Close
//
// A vote is granted, refused, failed or unknown.
//
// The kinds of faults are quarantine (the node may have forgotten locks), settings (its clients
// were configured for another number of nodes), same_server, wrong_type (the key does not hold a
// lock), denied (password or ACL), replica, loading, overload, refused (a connection), timeout,
// disconnected, closed and other.
//
// # Cardinality
//
// The label node is the name of the node: its address, or the name passed to pool.FromDial. All
// other labels have few fixed values. There are at most 50 series per node, and 60 more. The names
// of locks, their values and fencing tokens are never exported, because their number is unlimited.
// Logs and traces contain the names.
package redlockprom
