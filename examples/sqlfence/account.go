package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/fence"
)

// Schema: fence is the highest token seen, 0 for none. A token has 64 bits, which an INTEGER has in
// SQLite alone: in PostgreSQL and MySQL each write of one would fail.
const Schema = `CREATE TABLE IF NOT EXISTS account (
	id      TEXT   NOT NULL PRIMARY KEY,
	balance BIGINT NOT NULL,
	fence   BIGINT NOT NULL
)`

// ErrNoAccount says that there is no such row. It needs another remedy than fence.ErrStale, but has
// the same symptom: no row affected.
var ErrNoAccount = errors.New("sqlfence: no such account")

// An Account is a row of the table.
type Account struct {
	DB *sql.DB
	ID string
}

// Open makes the account, with a balance of zero, unless it exists. It needs no token, because it
// overwrites nothing; the row exists before the first check, so that the first two writers are told
// apart like any others.
func (a Account) Open(ctx context.Context) error {
	_, err := a.DB.ExecContext(ctx, `INSERT INTO account (id, balance, fence) VALUES (?, 0, 0) ON CONFLICT (id) DO NOTHING`, a.ID)
	return err
}

// Set writes the balance. The error matches fence.ErrStale if a higher token was there first, and
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

// Announce tells the account the token of a lock that has just been granted. From then on holders
// before are refused. Errors are those of Set.
func (a Account) Announce(ctx context.Context, token int64) error {
	_, err := a.Balance(ctx, token)
	return err
}

// Balance announces the token and reads the balance, so that no earlier holder can write after it: a
// plain SELECT would leave the door open until the UPDATE. Errors are those of Set.
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

// whyNot is the reason why an UPDATE has met no row. Tokens never go back, so a row that has no
// higher one now was not there then.
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
