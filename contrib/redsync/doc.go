// Package redsync replaces github.com/go-redsync/redsync/v4 in a program. Change the import, and
// pass a redlock.Locker to New instead of pools. The rest stays the same.
//
//	nodes, err := pool.Open("redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379")
//	locker, err := redlock.New(nodes)
//	rs := redsync.New(locker)
//
//	mutex := rs.NewMutex("invoice:42", redsync.WithExpiry(10*time.Second))
//	err = mutex.Lock()
//	...
//	ok, err := mutex.Unlock()
//
// Both packages lock with SET key value NX PX and exclude each other on the same servers, so the
// programs of a fleet can switch one by one. All names, types and error values are the same as in
// redsync v4.18. This package needs none of its code.
//
// As in redsync, a Mutex is not renewed: it lasts for its expiry unless Extend is called. Held
// returns the underlying redlock.Lock, whose Context ends when the lock does. With it a program can
// move to package redlock step by step.
//
// # Intended differences
//
//   - Servers that are new, restarted or flushed have no vote until the locks that they may have
//     forgotten have expired. Lock fails during that time. See redlock.MemoryGuard, and
//     redlock.MaxTTL if expiries differ. Clients of redsync do not wait.
//   - Between two tries a Mutex waits in line with other mutexes of the process, and the servers
//     wake it when the lock may be free. It can therefore get the lock earlier than with redsync,
//     but not later: the tries and delays limit the wait. Delays below 50 ms are slept.
//   - No call waits for a hanging server once the others have decided: WithFailFast is always on.
//     All servers are asked at once: WithShufflePools changes nothing.
//   - Grants of a failed or cancelled Lock are released on the servers, even if their replies
//     arrive late. UnlockContext releases the lock even if its context has ended; the context
//     limits only the wait for confirmation. redsync leaves a late grant until its expiry. It also
//     leaves a lock if the context of UnlockContext has ended, unless its pool has an open
//     connection.
//   - Extend fails unless the lock is still held, before its Until. WithSetNXOnExtend does not lock
//     an expired mutex again, because another client may have held it since. Servers that have lost
//     the key get it again in any case.
//   - A Lock with a delay below 50 ms asks the servers once per try, even if a Mutex of its own
//     process holds the lock.
//   - Until is the zero time, and Valid is false, once the lock is released or known to be lost.
//   - WithGenValueFunc makes Lock fail, because the library must know that values are unique. Use
//     Value after Lock, and WithValue. WithDriftFactor above 0.01 makes Lock fail, too, because
//     redlock.Drift defines the allowance.
//   - Errors also match the errors of package redlock, which distinguish contention
//     (redlock.ErrHeld) from an outage (redlock.ErrNoQuorum), and the error of an ended context.
//     Compare them with errors.Is and errors.As, not with ==.
//   - A Mutex is safe for concurrent use.
package redsync
