// Package redsync takes the place of github.com/go-redsync/redsync/v4 in a program: the import is
// another, New gets a redlock.Locker instead of pools, and the rest stays as it is.
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
// Both lock by SET key value NX PX and exclude each other on the same servers, so the programs of a
// fleet can change one by one. All names, types and values of errors are those of redsync v4.18, and
// none of its code is needed.
//
// As with redsync, a Mutex is not renewed: it lasts for its expiry unless Extend is called. Held
// returns the redlock.Lock behind it, whose Context ends when the lock does; with that a program
// can go on to package redlock step by step.
//
// # What differs on purpose
//
//   - Servers that are new, or that were restarted or flushed, have no vote until the locks that they
//     may have forgotten have expired. Lock fails meanwhile. See redlock.MemoryGuard, and redlock.MaxTTL
//     where expiries differ. redsync's clients do not wait for that.
//   - Between two tries a Mutex waits in line with others of the process, and the servers wake it
//     when the lock may be free. So it comes earlier than redsync's, and not later: tries and delays
//     bound the waiting. Delays below 50 ms are slept.
//   - No call waits for a server that hangs, once the others have decided: WithFailFast is always on.
//     All servers are asked at once: WithShufflePools changes nothing.
//   - What a failed or cancelled Lock leaves on a server is released, also behind an answer that comes
//     too late. UnlockContext releases the lock though its context has ended, and bounds only the
//     waiting for confirmation. redsync leaves a late grant to the expiry, and so a lock whose
//     UnlockContext has an ended context, unless its pool has a connection that is open.
//   - Extend needs the lock to be held still, before its Until. WithSetNXOnExtend does not take a
//     lock again that has expired, because another client may have had it meanwhile. Servers that
//     have lost the key are given it again in any case.
//   - A Lock with a delay below 50 ms, beside a holder of its own process, asks the servers once for
//     each try.
//   - Until is the zero time, and Valid is false, once the lock is known to be lost or is released.
//   - WithGenValueFunc makes Lock fail, because the library must know that no value comes twice. Use
//     Value after Lock, and WithValue. WithDriftFactor above 0.01 makes it fail, too: redlock.Drift is
//     the allowance.
//   - Errors match those of package redlock as well, which tell contention (redlock.ErrHeld) from an
//     outage (redlock.ErrNoQuorum), and the context's error if that has ended. So compare them by
//     errors.Is and errors.As, not by ==.
//   - A Mutex is safe for concurrent use.
package redsync
