// Package fence is the resource's side of fencing: it rejects a write if a later holder of the lock
// has already written.
//
// # Why a lock is not enough
//
// A lock has a TTL, or a crashed holder would keep it for ever. So a holder can lose it without
// knowing:
//
//	A has the lock          A is paused: garbage collection, swap, a hypervisor
//	                        the lock expires
//	                        B takes the lock, and writes
//	A wakes up, and writes  over what B wrote
//
// A cannot prevent that by looking at the clock before it writes, because it can be paused between
// the look and the write, and the network can delay the write. No library on A's side can. This is
// Martin Kleppmann's argument
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). The documentation of
// Redis says so, too
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/, "Disclaimer about
// consistency").
//
// # What a token does
//
// Each grant of the lock has a token, a higher number than all grants before. The holder sends it
// with each write. The resource remembers the highest token it has seen, and rejects a lower one:
//
//	A has the lock, with token 33
//	                        B has the lock, with token 34, and writes: 34 is seen
//	A writes, with token 33: rejected, because 33 < 34
//
// An equal token passes, because a holder may write more than once.
//
// # From the grant on
//
// A resource that learns a token only by a write lets A through until B has written:
//
//	A has the lock, with token 33, and is paused
//	                        B has the lock, with token 34, and reads
//	A wakes up, and writes  33 is the highest that the resource has seen
//	                        B writes, and A's write is lost
//
// So B announces its token as soon as it has the lock, before it reads or does anything else. An
// announcement is a write that changes nothing but the token. From then on A is refused, and what A
// wrote before, B reads:
//
//	lock, err := locker.Acquire(ctx, "account:42", redlock.Fenced())
//	defer lock.Release(ctx)
//	err = gate.Announce("account:42", lock.Fence())
//
// An announcement is refused as a write is, and may be repeated. If it fails, do not begin the work.
//
// # What it takes
//
//   - The resource compares tokens. It does not help if the holder does.
//   - Check, write and memory of the token are one atomic step. Between two steps a later holder
//     fits in.
//   - The token is stored with what it protects: in the same row, key or file. A resource that
//     forgot it lets one late writer pass.
//   - All writers bring tokens of the same lock.
//   - A holder announces its token before it reads or writes.
//
// A token orders writers, and undoes nothing: B finds what A did before it was paused. If a resource
// cannot check tokens (an e-mail, a payment at another company), only the lock protects it. Its holder
// must stop when the lock's context ends, and may be late.
//
// # Forms
//
// [Gate] is for a resource in the memory of one process, or behind it. [RedisSet] is for a Redis
// key. For a row in SQL, one statement writes, and one announces:
//
//	UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
//	UPDATE account SET fence = ? WHERE id = ? AND fence <= ?
//
// If it meets no row, the writer is late (or there is no such row). The folder examples/sqlfence has
// it in full. If one lock protects several rows or tables, give it a row of its own, and begin the
// transaction of each write with that statement.
//
// MySQL's driver needs clientFoundRows=true, because it otherwise counts a row that already has these
// values as not met. Declare the column NOT NULL DEFAULT 0: where fence is NULL, each writer is refused.
//
// Tokens are whole numbers from 1 to [MaxToken], today about 1.8e15. In SQL use BIGINT, because an
// INTEGER has 32 bits in PostgreSQL and MySQL. A lock without fencing has 0, which is rejected: a
// forgotten option must not look like a passed check.
package fence
