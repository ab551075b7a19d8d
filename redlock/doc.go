// Package redlock takes locks by the votes of independent Redis servers: the
// Redlock algorithm
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
//
// A lock is a key with a random value and a TTL, set with SET NX PX on all N
// nodes at once. The client that gets N/2+1 of them holds it, for the TTL less the time
// the vote took and less an allowance for clock drift. This package decides:
// quorum, validity, waiting, renewal, loss. It knows neither Redis nor sockets;
// a [Node] does, and package pool has those.
//
//	nodes, err := pool.Open("redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379")
//	locker, err := redlock.New(nodes, redlock.TTL(10*time.Second))
//	defer locker.Close()
//
//	lock, err := locker.Acquire(ctx, "invoice:42")
//	defer lock.Release(ctx)
//	work(lock.Context())
//
// [Locker.AcquireAll] takes several names as one lock, all or none.
//
// # What is promised
//
//   - Exclusion. At most one valid holder of a name, while the rates of all
//     clocks differ by at most the drift allowance ([Drift]), while fewer than
//     h+q-N nodes forget their keys or have their clocks set (h is the number
//     of [Lock.Votes], q the quorum), and while the holder stops when
//     [Lock.Context] ends. Nodes whose forgetting is noticed do not count among
//     those: see [MemoryGuard]. With [Permits] this holds for each permit, so that a name has
//     at most k holders. With [Shared] any number of readers count as one holder.
//   - Fencing. With [Fenced], the tokens of all locks of a name are unique, and
//     a lock that was granted before another was asked for has the smaller
//     one, whatever the clocks say, unless a counter is deleted or changed
//     (key redlock:fence:{KEY}) by hand. A node that forgets all its keys does no
//     harm, if the memory guard is on and the node's clock is not set back.
//   - Honest validity. A lock is never reported valid after its own deadline,
//     on a clock that goes on while the machine sleeps, where the platform has
//     one: Linux, macOS, Windows. A hypervisor that pauses a virtual machine
//     without its knowledge stops all of its clocks.
//   - Loss is told. Lock.Context ends at the deadline at the latest, even if
//     every connection hangs; after a sleep of the machine, within a quarter of
//     a second of waking.
//   - Progress. While a majority of nodes is up, some waiter gets the lock; a
//     dead or hung minority costs no time beyond the quorum's own.
//   - Bounded damage. An acquisition that failed, was cancelled or crashed
//     blocks others for at most one TTL.
//
// # What is not
//
// A holder that is paused, by a garbage collection or a hypervisor, can wake
// up after its lock has ended and write before it looks. No lease can prevent
// that; only the resource itself can, by rejecting writers who are late
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
// Where that matters, the resource must check [Lock.Fence].
//
// # What callers owe
//
// All clients of a name use the same nodes, and as many; with [NewGroups] nodes
// change while clients run. No node is a replica of another, and none evicts keys
// (maxmemory-policy noeviction). Work stops when Lock.Context ends.
//
// # What may grow
//
// Structs get fields, and [EventKind], [Op] and [Outcome] get values: so name the
// fields in literals, and have a default in a switch. [Observer] and [Tracer] get no
// methods. A [Node] gets methods, because only package pool makes nodes.
// docs/COMPATIBILITY.md has the rest.
package redlock
