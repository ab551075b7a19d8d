// Package redlock implements locks on a quorum of independent Redis servers: the Redlock algorithm
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
//
//	nodes, err := pool.Open("redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379")
//	locker, err := redlock.New(nodes, redlock.TTL(10*time.Second))
//	defer locker.Close()
//
//	lock, err := locker.Acquire(ctx, "invoice:42")
//	defer lock.Release(ctx)
//	work(lock.Context())
//
// A lock is a key with a random value and a TTL. The client sets it on all N nodes at once with SET
// NX PX. If N/2+1 nodes grant it, the client holds the lock for the TTL, less the duration of the
// attempt and an allowance for clock drift ([Drift]). Then the lock renews itself until it is
// released.
//
// [Locker.AcquireAll] acquires several names as one lock. [Shared] is for readers, and [Permits]
// for semaphores. A [Node] is one server; package pool creates nodes.
//
// # Guarantees
//
//   - Exclusion. A name has at most one holder (k with [Permits]; many readers or one writer with
//     [Shared]). This assumes that clock rates differ by less than [Drift] allows, that holders
//     stop when [Lock.Context] ends, and that fewer than h+q-N nodes forget their keys unnoticed or
//     have their clocks set, where h is [Lock.Votes] and q the quorum. [MemoryGuard] detects nodes
//     that forget.
//   - Fencing. With [Fenced] each lock of a name has its own token. If one lock was granted before
//     another was requested, the first has the smaller token, whatever the clocks show. This
//     assumes that counters are not changed by hand (key redlock:fence:{KEY}). With the memory
//     guard on, a node that forgets all its keys does no harm unless its clock is set back.
//   - Honest validity. No lock is reported valid after its deadline, on a clock that counts the
//     time the machine sleeps (Linux, macOS, Windows). A hypervisor that pauses a virtual machine
//     without its knowledge stops all of its clocks.
//   - Reported loss. Lock.Context ends at the deadline at the latest, even if every connection
//     hangs. After a sleep of the machine it ends within a quarter of a second of waking.
//   - Progress. While a majority of nodes is up, some waiter gets the lock. A dead or hung minority
//     costs no time.
//   - Bounded damage. An acquisition that failed, was cancelled or crashed blocks others for at
//     most one TTL. If it crashed during its wait, it delays new readers for a second and two node
//     timeouts, and [Fair] callers for a second.
//
// # No guarantee against late writers
//
// A holder that was paused, by a garbage collection or a hypervisor, can wake up after its lock has
// ended and write before it checks the lock. No lease can prevent that. Only the resource can, by
// rejecting late writers
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). If that matters,
// let the resource check [Lock.Fence].
//
// # Requirements for callers
//
// All clients of a name use the same nodes, and with [NewGroups] the same groups of nodes. No node
// is a replica of another, and none evicts keys (maxmemory-policy noeviction). Work stops when
// Lock.Context ends.
//
// # Compatible additions
//
// Structs get fields, and [EventKind], [Op] and [Outcome] get values. Therefore name the fields in
// literals, and have a default in each switch. [Observer] and [Tracer] get no new methods; [Node]
// does. docs/COMPATIBILITY.md has the details.
package redlock
