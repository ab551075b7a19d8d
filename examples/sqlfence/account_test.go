package sqlfence_test

import (
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/redquorum/redquorum/examples/sqlfence"
	"github.com/redquorum/redquorum/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database returns a new database, in which a trigger records the changes of accounts.
func database(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "bank.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	for _, statement := range []string{
		sqlfence.Schema,
		`CREATE TABLE history (n INTEGER PRIMARY KEY AUTOINCREMENT, balance BIGINT, fence BIGINT)`,
		`CREATE TRIGGER note AFTER UPDATE ON account BEGIN INSERT INTO history (balance, fence) VALUES (new.balance, new.fence); END`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return db
}

func account(db *sql.DB) sqlfence.Account { return sqlfence.Account{DB: db, ID: "42"} }

// history returns the tokens of the writes, in the order of the writes.
func history(t *testing.T, db *sql.DB) []int64 {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT fence FROM history ORDER BY n`)
	require.NoError(t, err)
	defer rows.Close()
	var tokens []int64
	for rows.Next() {
		var token int64
		require.NoError(t, rows.Scan(&token))
		tokens = append(tokens, token)
	}
	require.NoError(t, rows.Err())
	return tokens
}

func stored(t *testing.T, db *sql.DB, id string) (balance, token int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT balance, fence FROM account WHERE id = ?`, id).Scan(&balance, &token))
	return balance, token
}

// TestColumnsHave64Bits: a token is about 1.8e15, and an INTEGER may have only 32 bits.
func TestColumnsHave64Bits(t *testing.T) {
	t.Parallel()
	rows, err := database(t).QueryContext(t.Context(), `SELECT name, type FROM pragma_table_info('account') WHERE name <> 'id'`)
	require.NoError(t, err)
	defer rows.Close()
	types := map[string]string{}
	for rows.Next() {
		var name, is string
		require.NoError(t, rows.Scan(&name, &is))
		types[name] = is
	}
	require.NoError(t, rows.Err())
	assert.Equal(t, map[string]string{"balance": "BIGINT", "fence": "BIGINT"}, types)
}

// TestStaleWriterChangesNothing: a second Open changes nothing, either. A holder may write again.
func TestStaleWriterChangesNothing(t *testing.T) {
	t.Parallel()
	db := database(t)
	for _, balance := range []int64{90, 90, 80} {
		require.NoError(t, account(db).Open(t.Context()))
		require.NoError(t, account(db).Set(t.Context(), balance, 34))
	}
	require.NoError(t, account(db).Open(t.Context()))

	err := account(db).Set(t.Context(), 100, 33)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, fence.StaleError{Key: "42", Token: 33, Highest: 34}, *stale)
	require.ErrorIs(t, err, fence.ErrStale)
	require.NotErrorIs(t, err, sqlfence.ErrNoAccount)

	balance, token := stored(t, db, "42")
	assert.EqualValues(t, 80, balance)
	assert.EqualValues(t, 34, token)
}

func TestMissingRowIsNotStale(t *testing.T) {
	t.Parallel()
	db := database(t)
	err := account(db).Set(t.Context(), 90, 34)
	require.ErrorIs(t, err, sqlfence.ErrNoAccount)
	require.NotErrorIs(t, err, fence.ErrStale)
	_, err = account(db).Balance(t.Context(), 34)
	require.ErrorIs(t, err, sqlfence.ErrNoAccount)
}

// TestAnnouncementRejectsLateWriters: a late write between the read and the write of a later holder
// would be overwritten and lost.
func TestAnnouncementRejectsLateWriters(t *testing.T) {
	t.Parallel()
	for name, announce := range map[string]func(sqlfence.Account, int64) error{
		"announcement": func(a sqlfence.Account, token int64) error { return a.Announce(t.Context(), token) },
		"read": func(a sqlfence.Account, token int64) error {
			balance, err := a.Balance(t.Context(), token)
			if err == nil {
				assert.EqualValues(t, 100, balance)
			}
			return err
		},
	} {
		a := sqlfence.Account{DB: database(t), ID: name}
		require.NoError(t, a.Open(t.Context()))
		require.NoError(t, a.Set(t.Context(), 100, 33), "before it")
		require.NoError(t, announce(a, 34))
		require.NoError(t, announce(a, 34))
		require.ErrorIs(t, a.Set(t.Context(), 50, 33), fence.ErrStale)
		require.ErrorIs(t, announce(a, 33), fence.ErrStale)
		require.ErrorIs(t, announce(a, 0), fence.ErrToken)
		balance, token := stored(t, a.DB, name)
		assert.EqualValues(t, 100, balance)
		assert.EqualValues(t, 34, token)
		require.NoError(t, a.Set(t.Context(), 90, 34))
	}
}

func TestLockWithoutFencingCannotWrite(t *testing.T) {
	t.Parallel()
	db := database(t)
	require.NoError(t, account(db).Open(t.Context()))
	for _, token := range []int64{0, -1, fence.MaxToken + 1} {
		require.ErrorIs(t, account(db).Set(t.Context(), 90, token), fence.ErrToken)
		_, err := account(db).Balance(t.Context(), token)
		require.ErrorIs(t, err, fence.ErrToken)
	}
	assert.Empty(t, history(t, db))
}

func TestHistoryNeverGoesBack(t *testing.T) {
	t.Parallel()
	db := database(t)
	require.NoError(t, account(db).Open(t.Context()))
	var wg sync.WaitGroup
	for writer := range uint64(4) {
		random := rand.New(rand.NewPCG(1, writer))
		wg.Go(func() {
			for i := range int64(50) {
				token := 1 + 10*i + random.Int64N(100) // tokens are close together, and mostly rise
				if err := account(db).Set(t.Context(), token, token); err != nil && !assert.ErrorIs(t, err, fence.ErrStale) {
					return
				}
			}
		})
	}
	wg.Wait()
	tokens := history(t, db)
	assert.True(t, slices.IsSorted(tokens), "%v", tokens)
	balance, token := stored(t, db, "42")
	assert.Equal(t, token, balance, "the balance of one writer, the token of another")
	assert.Equal(t, slices.Max(tokens), token)
	t.Logf("%d of 200 writes passed", len(tokens))
}
