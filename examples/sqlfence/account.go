package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/fence"
)

// Schema creates the table. The column fence is the highest token seen; 0 means none. A token has
// 64 bits. An INTEGER has 64 bits only in SQLite: in PostgreSQL and MySQL each write of a token
// into an INTEGER would fail.
const Schema = `CREATE TABLE IF NOT EXISTS account (
	id      TEXT   NOT NULL PRIMARY KEY,
	balance BIGINT NOT NULL,
	fence   BIGINT NOT NULL
)`

// ErrNoAccount means that the row does not exist. It has the same symptom as fence.ErrStale (no
// affected row) but needs another remedy.
var ErrNoAccount = errors.New("sqlfence: no such account")

// An Account is a row of the table.
type Account struct {
	DB *sql.DB
	ID string
}

// Open creates the account with a balance of zero, unless it exists. It needs no token, because it
// overwrites nothing. The row exists before the first check, so that the first two writers are
// compared like any others.
func (a Account) Open(ctx context.Context) error {
	_, err := a.DB.ExecContext(ctx, `INSERT INTO account (id, balance, fence) VALUES (?, 0, 0) ON CONFLICT (id) DO NOTHING`, a.ID)
	return err
}

// Set writes the balance. The error matches fence.ErrStale if the row has a higher token, and
// ErrNoAccount if the account was not opened.
func (a Account) Set(ctx context.Context, balance, token int64) error {
	if err := fence.Check(token); err != nil {
		return err
	}
	res, err := a.DB.ExecContext(ctx, `UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?`, balance, token, a.ID, token)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return a.whyNot(ctx, token)
	}
	return nil
}

// Announce registers the token of a lock that was just granted. From then on writes of earlier
// holders are rejected. The errors are the same as for Set.
func (a Account) Announce(ctx context.Context, token int64) error {
	_, err := a.Balance(ctx, token)
	return err
}

// Balance announces the token and reads the balance, so that no earlier holder can write
// afterwards. After a plain SELECT, earlier holders could still write until the UPDATE. The errors
// are the same as for Set.
func (a Account) Balance(ctx context.Context, token int64) (int64, error) {
	if err := fence.Check(token); err != nil {
		return 0, err
	}
	var balance int64
	err := a.DB.QueryRowContext(ctx, `UPDATE account SET fence = ? WHERE id = ? AND fence <= ? RETURNING balance`, token, a.ID, token).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, a.whyNot(ctx, token)
	}
	return balance, err
}

// whyNot returns the reason an UPDATE matched no row. Tokens only grow, so if the row has no higher
// token now, it did not exist during the UPDATE.
func (a Account) whyNot(ctx context.Context, token int64) error {
	var highest int64
	err := a.DB.QueryRowContext(ctx, `SELECT fence FROM account WHERE id = ?`, a.ID).Scan(&highest)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && highest <= token:
		return fmt.Errorf("%w: %q", ErrNoAccount, a.ID)
	case err != nil:
		return err
	}
	return &fence.StaleError{Key: a.ID, Token: token, Highest: highest}
}
