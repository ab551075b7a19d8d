// Package fence is the resource's side of fencing: it lets a write pass only if
// no later holder of the lock has written before, and says so otherwise.
//
// # Why a lock is not enough
//
// A lock with a TTL ends by itself, or a crashed holder would keep it for ever.
// So its holder can lose it without knowing:
//
//	A has the lock          A is paused: garbage collection, swap, a hypervisor
//	                        the lock expires
//	                        B takes the lock, and writes
//	A wakes up, and writes  over what B wrote
//
// A cannot prevent it by looking at the clock before it writes, because it can
// be paused between the look and the write, and the write can be delayed on the
// network. No library can either, on the side of A. This is Martin Kleppmann's
// argument
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html),
// and the documentation of Redis names fencing tokens first among what to do
// where correctness depends on the lock
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/,
// "Disclaimer about consistency").
//
// # What a token does
//
// Each grant of the lock comes with a token, a number that is higher than those of
// all grants before. The holder sends it along with each write, and the resource
// remembers the highest that it has seen, and rejects what comes with a lower one:
//
//	A has the lock, with token 33
//	                        B has the lock, with token 34, and writes: 34 is seen
//	A writes, with token 33: rejected, because 33 < 34
//
// An equal token passes, because a holder may write more than once.
//
// # What it takes
//
//   - The resource checks. A token that is not compared protects nothing; nor does
//     one that the holder compares by itself before it writes.
//   - Check, write and memory of the token are one atomic step. Between a check
//     and a write that are two steps, a later holder fits in.
//   - The token is remembered as long, and as safely, as what it protects: in the
//     same row, the same key, the same file. A resource that forgot it lets one
//     late writer pass.
//   - All writers bring tokens, of the same lock.
//   - Who reads in order to write shows the token first, by a write that changes
//     nothing else. Otherwise a late write can still come between its read and
//     its write, when no higher token has been seen yet.
//
// A token orders writers; it does not undo. A, who was paused, may have done
// half of its work before B came, and B finds that half. And where a resource
// cannot check (an e-mail, a payment at another company's), the lock is all there
// is: its holder must stop when the lock's context ends, and may be late.
//
// # Forms
//
// [Gate] is for a resource that lives in the memory of one process, or behind
// it. [RedisSet] is for one that is a Redis key. For one that is a row in SQL,
// one statement does:
//
//	UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
//
// No row is changed where the writer is late (or there is no such row). The
// folder examples/sqlfence has it in full. Where one lock protects several rows
// or tables, give it a row of its own, with that statement first in the
// transaction of each write.
//
// Tokens are whole numbers from 1 to [MaxToken], today about 1.8e15: in SQL a
// BIGINT, because an INTEGER has 32 bits in PostgreSQL and MySQL. 0 is what a lock without
// fencing has, and is rejected: a forgotten option must not look like a
// passed check.
package fence
