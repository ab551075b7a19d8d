// Package sqlfence shows fencing tokens for rows of an SQL database: accounts with a balance, each
// protected by its own lock. The check is part of the statement that writes:
//
//	UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
//
// If another holder has taken the lock in the meantime, the writer changes no row, even if it does
// not know about the loss. With a lock:
//
//	lock, err := locker.Acquire(ctx, "account:"+id, redlock.Fenced())
//	defer lock.Release(ctx)
//	account := sqlfence.Account{DB: db, ID: id}
//	balance, err := account.Balance(ctx, lock.Fence()) // announces the token
//	err = account.Set(ctx, balance-10, lock.Fence())
//
// A holder that reads later, or writes without reading, calls account.Announce first.
//
// The example uses SQLite, which needs no installation in Go. Other databases:
//
//   - PostgreSQL: the same, with $1, $2 for the parameters. Under READ COMMITTED a statement that
//     has waited for another transaction's row lock checks fence again.
//   - MySQL: VARCHAR(255) for the id, INSERT IGNORE for the first use, UPDATE and SELECT in one
//     transaction instead of RETURNING, and clientFoundRows=true in the driver's settings, because
//     otherwise a row that already has the values does not count as affected.
//
// A deleted row has forgotten its token. Mark it as deleted instead.
package sqlfence
