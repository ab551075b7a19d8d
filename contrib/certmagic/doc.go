// Package redlockcertmagic gives any storage of certmagic, and so of Caddy, the locks of a
// redlock.Locker. Certificates stay where they are; only the locks are held by the votes of Redis
// servers.
//
//	storage, err := redlockcertmagic.New(&certmagic.FileStorage{Path: "/mnt/shared"}, locker)
//	certmagic.Default.Storage = storage
//
// All instances of a cluster must lock in the same way, so give all of them this storage at once: an
// instance with another one neither excludes these nor is excluded. As certmagic says itself, what it
// does under a lock tolerates that now and then.
//
// # Leases
//
// A lock is renewed for as long as its holder lives, however long issuing takes, and ends one TTL of
// the Locker after the holder has died. So the durations that certmagic asks for in RenewLockLease,
// which are up to 30 days, are no TTLs, and are not used.
//
// # A lock that is lost
//
// certmagic has no way to stop what it does under a lock. It learns of a loss in two places:
//
//   - RenewLockLease, which it calls before each attempt to get a certificate. A lock that was lost
//     is acquired anew then, because an attempt begins by looking whether the certificate is there.
//     If another instance has it, the attempt fails, and certmagic makes another later.
//   - Unlock, whose error matches redlock.ErrLost. certmagic writes it to its log.
//
// An attempt that is under way when its lock is lost goes on, and another instance can begin one
// beside it. The worst of that is a certificate that is issued twice.
//
// # The end of a process
//
// certmagic.CleanUpOwnLocks unlocks all that the process holds, without stopping what is done under
// the locks. That unlocks a second time when it is done: an Unlock of what is not locked does nothing.
// Locks have names and no handles, so if the process locks such a name again in between, the second
// Unlock frees that lock. So call CleanUpOwnLocks immediately before the exit, as certmagic says.
package redlockcertmagic
