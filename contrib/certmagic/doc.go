// Package redlockcertmagic adds the locks of a redlock.Locker to any storage of certmagic, and so
// of Caddy. Certificates stay where they are. Only the locks are held on Redis servers.
//
//	storage, err := redlockcertmagic.New(&certmagic.FileStorage{Path: "/mnt/shared"}, locker)
//	certmagic.Default.Storage = storage
//
// All instances of a cluster must use the same kind of lock, so switch all of them to this storage
// at the same time. An instance with another storage neither excludes the others nor is excluded.
// As its documentation says, certmagic tolerates an occasional overlap.
//
// # Leases
//
// A lock is renewed as long as its holder lives, no matter how long the issuing takes, and expires
// one TTL of the Locker after the holder has died. The durations that certmagic passes to
// RenewLockLease, up to 30 days, are therefore not used as TTLs.
//
// # Lost locks
//
// certmagic cannot stop work that runs under a lock. It notices a loss in two places:
//
//   - RenewLockLease, which certmagic calls before each attempt to get a certificate. A lost lock
//     is then acquired again, because an attempt first checks whether the certificate exists. If
//     another instance has the lock, the attempt fails, and certmagic makes another attempt later.
//   - Unlock, whose error matches redlock.ErrLost. certmagic logs it.
//
// An attempt that loses its lock continues, and another instance can start a second one at the same
// time. At worst, the certificate is issued twice.
//
// # Exit of a process
//
// certmagic.CleanUpOwnLocks unlocks all locks of the process without stopping the work. The work
// unlocks a second time when it is done. An Unlock without a lock does nothing. Locks have names
// but no handles, so if the process locks the name again in between, the second Unlock frees the
// new lock. Therefore call CleanUpOwnLocks immediately before the exit, as certmagic recommends.
package redlockcertmagic
