package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/fence"
)

// Schema: fence is the highest token seen, 0 for none.
const Schema = `CREATE TABLE IF NOT EXISTS account (
	id      TEXT    NOT NULL PRIMARY KEY,
	balance INTEGER NOT NULL,
	fence   INTEGER NOT NULL
)`

// ErrNoAccount says that there is no such row. It needs another remedy than
// fence.ErrStale, but has the same symptom: no row affected.
var ErrNoAccount = errors.New("sqlfence: no such account")

// Open makes an empty account, unless it exists. It needs no token, because it
// overwrites nothing; the row exists before the first check, so that two first
// writers are told apart like any others.
func Open(ctx context.Context, db *sql.DB, id string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO account (id, balance, fence) VALUES (?, 0, 0) ON CONFLICT (id) DO NOTHING`, id)
	return err
}

// Set writes the balance. The error matches fence.ErrStale if a higher token
// was there first, and ErrNoAccount if the account was not opened.
func Set(ctx context.Context, db *sql.DB, id string, balance, token int64) error {
	if err := fence.Check(token); err != nil {
		return err
	}
	res, err := db.ExecContext(ctx, `UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?`, balance, token, id, token)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return whyNot(ctx, db, id, token)
	}
	return nil
}

// Balance reads the balance in order to write it. It shows the token at the
// same time, so that no earlier holder can write after it: a plain SELECT would
// leave the door open until the UPDATE. Errors are those of Set.
func Balance(ctx context.Context, db *sql.DB, id string, token int64) (int64, error) {
	if err := fence.Check(token); err != nil {
		return 0, err
	}
	var balance int64
	err := db.QueryRowContext(ctx, `UPDATE account SET fence = ? WHERE id = ? AND fence <= ? RETURNING balance`, token, id, token).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, whyNot(ctx, db, id, token)
	}
	return balance, err
}

// whyNot says why an UPDATE has met no row. Tokens never go back, so a row that
// has no higher one now was not there then.
func whyNot(ctx context.Context, db *sql.DB, id string, token int64) error {
	var highest int64
	err := db.QueryRowContext(ctx, `SELECT fence FROM account WHERE id = ?`, id).Scan(&highest)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && highest <= token:
		return fmt.Errorf("%w: %q", ErrNoAccount, id)
	case err != nil:
		return err
	}
	return &fence.StaleError{Key: id, Token: token, Highest: highest}
}
