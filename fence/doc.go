// Package fence is the resource's side of fencing: it rejects a write if a later holder of the lock
// has already written.
//
// # Why a lock is not enough
//
// A lock has a TTL, because otherwise a crashed holder would keep it without limit. A holder can
// therefore lose it without knowing:
//
//	A has the lock          A is paused: garbage collection, swap, a hypervisor
//	                        the lock expires
//	                        B takes the lock, and writes
//	A wakes up, and writes  and overwrites B's data
//
// A cannot prevent this by reading the clock before it writes, because it can be paused between the
// two, and the network can delay the write. No library on A's side can. This is Martin Kleppmann's
// argument (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). The
// documentation of Redis agrees
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/, "Disclaimer about
// consistency").
//
// # How a token helps
//
// Each grant of the lock has a token, a higher number than all earlier grants. The holder sends it
// with each write. The resource remembers the highest token it has seen, and rejects a lower one:
//
//	A has the lock, with token 33
//	                        B has the lock, with token 34, and writes: 34 is seen
//	A writes, with token 33: rejected, because 33 < 34
//
// An equal token passes, because a holder may write more than once.
//
// # Announcing the token
//
// A resource that learns a token only from a write accepts A's writes until B has written:
//
//	A has the lock, with token 33, and is paused
//	                        B has the lock, with token 34, and reads
//	A wakes up, and writes  33 is the highest that the resource has seen
//	                        B writes, and A's write is lost
//
// B therefore announces its token as soon as it has the lock, before it reads or does anything
// else. An announcement is a write that changes only the token. From then on A's writes are
// rejected, and B reads everything that A wrote before:
//
//	lock, err := locker.Acquire(ctx, "account:42", redlock.Fenced())
//	defer lock.Release(ctx)
//	err = gate.Announce("account:42", lock.Fence())
//
// An announcement is rejected like a write, and may be repeated. If it fails, do not begin the
// work.
//
// # Requirements
//
//   - The resource compares tokens. A comparison by the holder does not help.
//   - Checking, writing and storing the token are one atomic step. Otherwise a later holder can
//     write between two steps.
//   - The token is stored together with the data: in the same row, key or file. A resource that
//     forgot it lets one late writer pass.
//   - All writers use tokens of the same lock.
//   - A holder announces its token before it reads or writes.
//
// A token orders writers, and undoes nothing: B finds the writes that A made before it was paused.
// If a resource cannot check tokens (an e-mail, a payment at another company), only the lock
// protects it. Its holder must stop when the lock's context ends, and may be late.
//
// # Forms
//
// [Gate] protects a resource in the memory of one process, or one that only that process can reach.
// [RedisSet] protects a Redis key. A row in SQL takes one statement to write, and one to announce:
//
//	UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
//	UPDATE account SET fence = ? WHERE id = ? AND fence <= ?
//
// If the statement matches no row, the writer is late, or the row does not exist. The folder
// examples/sqlfence has a complete program. If one lock protects several rows or tables, give it a
// row of its own, and begin the transaction of each write with that statement.
//
// MySQL's driver needs clientFoundRows=true, because by default it does not count a matched row
// whose values stay the same. Declare the column NOT NULL DEFAULT 0, because a NULL in fence
// rejects every writer.
//
// Tokens are whole numbers from 1 to [MaxToken], today about 1.8e15. In SQL use BIGINT, because an
// INTEGER has 32 bits in PostgreSQL and MySQL. A lock without fencing has token 0, which is
// rejected, because a forgotten option must not look like a passed check.
package fence
