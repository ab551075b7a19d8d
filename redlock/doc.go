// Package redlock takes locks by the votes of independent Redis servers: the Redlock algorithm
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
// NX PX. If N/2+1 nodes grant it, the client holds the lock for the TTL, less the time the vote took
// and an allowance for clock drift ([Drift]). Then the lock renews itself until it is released.
//
// [Locker.AcquireAll] takes several names as one lock. [Shared] is for readers, and [Permits] for
// semaphores. A [Node] is one server; package pool makes nodes.
//
// # What is promised
//
//   - Exclusion. A name has at most one holder (k with [Permits]; many readers or one writer with
//     [Shared]). This assumes that clock rates differ by less than [Drift] allows, that holders stop when
//     [Lock.Context] ends, and that fewer than h+q-N nodes forget their keys unnoticed or have their
//     clocks set, where h is [Lock.Votes] and q the quorum. [MemoryGuard] notices nodes that forget.
//   - Fencing. With [Fenced] each lock of a name has its own token. A lock that was granted before
//     another was asked for has the smaller one, whatever the clocks say. This assumes that nobody
//     changes a counter by hand (key redlock:fence:{KEY}). A node that forgets all its keys does no
//     harm with the memory guard on, unless its clock is set back.
//   - Honest validity. No lock is reported valid after its deadline, on a clock that counts the time
//     the machine sleeps (Linux, macOS, Windows). A hypervisor that pauses a virtual machine without
//     its knowledge stops all of its clocks.
//   - Loss is told. Lock.Context ends at the deadline at the latest, even if every connection hangs.
//     After a sleep of the machine it ends within a quarter of a second of waking.
//   - Progress. While a majority of nodes is up, some waiter gets the lock. A dead or hung minority
//     costs no time.
//   - Bounded damage. An acquisition that failed, was cancelled or crashed blocks others for one TTL
//     at most. One that crashed while it waited delays new readers for a second and two node timeouts,
//     and [Fair] callers for a second.
//
// # What is not promised
//
// A holder that was paused, by a garbage collection or a hypervisor, can wake up after its lock has
// ended and write before it looks. No lease can prevent that. Only the resource can, by rejecting
// late writers (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). If that
// matters, let the resource check [Lock.Fence].
//
// # What callers must do
//
// All clients of a name use the same nodes, and with [NewGroups] the same groups of nodes. No node is
// a replica of another, and none evicts keys (maxmemory-policy noeviction). Work stops when
// Lock.Context ends.
//
// # What may grow
//
// Structs get fields, and [EventKind], [Op] and [Outcome] get values. So name the fields in literals,
// and have a default in each switch. [Observer] and [Tracer] get no methods; [Node] does.
// docs/COMPATIBILITY.md has the rest.
package redlock
