// Package sqlfence shows fencing tokens where the protected resource is a row in an SQL database:
// accounts with a balance, each protected by a lock of its own. The check is part of the statement
// that writes:
//
//	UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
//
// A writer whose lock another took meanwhile changes no row, even if it does not know that it has
// lost the lock. With a lock:
//
//	lock, err := locker.Acquire(ctx, "account:"+id, redlock.Fenced())
//	defer lock.Release(ctx)
//	account := sqlfence.Account{DB: db, ID: id}
//	balance, err := account.Balance(ctx, lock.Fence()) // announces the token
//	err = account.Set(ctx, balance-10, lock.Fence())
//
// A holder that reads later, or writes without reading, calls account.Announce first.
//
// This is SQLite (in Go, nothing to install). Elsewhere:
//
//   - PostgreSQL: the same, with $1, $2 for the parameters. Under READ COMMITTED a
//     statement that has waited for another's row lock looks at fence anew.
//   - MySQL: VARCHAR(255) for the id, INSERT IGNORE for the first use, UPDATE and SELECT in one transaction in
//     place of RETURNING, and clientFoundRows=true in the driver's settings, or a
//     row that already has the values counts as not affected.
//
// A deleted row has forgotten its token; mark it as deleted instead.
package sqlfence
