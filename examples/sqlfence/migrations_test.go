package sqlfence_test

import (
	"context"
	"database/sql"
	"io"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
	databasestub "github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

// The tests of this file run the migrations of docs/ADAPTERS.md. They are here because they need
// SQLite.

func gooseUp(ctx context.Context, locker *redlock.Locker, provider *goose.Provider) error {
	err := locker.Do(ctx, "migrations", func(ctx context.Context) error {
		_, err := provider.Up(ctx) // goose cancels the running migration if the lock is lost
		return err
	}, redlock.TTL(2*time.Minute)) // the longest outage of the servers that a migration survives
	return err
}

func migrateUp(ctx context.Context, locker *redlock.Locker, m *migrate.Migrate) error {
	err := locker.Do(ctx, "migrations", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { m.GracefulStop <- true })()
		return m.Up()
	})
	return err
}

// gooseProvider has one migration, in Go.
func gooseProvider(t *testing.T, up func(context.Context, *sql.Tx) error) *goose.Provider {
	t.Helper()
	provider, err := goose.NewProvider(goose.DialectSQLite3, database(t), nil,
		goose.WithGoMigrations(goose.NewGoMigration(1, &goose.GoFunc{RunTx: up}, nil)))
	require.NoError(t, err)
	return provider
}

func TestGooseMigratesUnderALock(t *testing.T) {
	locker := redlocktest.Start(t).Locker(redlock.NodeTimeout(8 * time.Second))
	provider := gooseProvider(t, func(ctx context.Context, tx *sql.Tx) error {
		_, err := locker.TryAcquire(ctx, "migrations")
		assert.ErrorIs(t, err, redlock.ErrHeld)
		return nil
	})
	require.NoError(t, gooseUp(t.Context(), locker, provider))
	version, err := provider.GetDBVersion(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, version)
}

func TestGooseStopsAMigrationWithALostLock(t *testing.T) {
	locker := redlocktest.Start(t).Locker(redlock.NodeTimeout(8 * time.Second))
	provider := gooseProvider(t, func(ctx context.Context, tx *sql.Tx) error {
		go locker.Close()
		<-ctx.Done()
		return ctx.Err()
	})
	assert.ErrorIs(t, gooseUp(t.Context(), locker, provider), redlock.ErrClosed)
	version, err := provider.GetDBVersion(t.Context())
	require.NoError(t, err)
	assert.Zero(t, version)
}

// A driver is a database of golang-migrate that reports each migration to the test.
type driver struct {
	migratedb.Driver
	run func()
}

func (d driver) Run(migration io.Reader) error {
	d.run()
	return d.Driver.Run(migration)
}

// files reports the opening of the second file.
type files struct {
	fstest.MapFS
	second chan struct{}
}

func (f files) Open(name string) (fs.File, error) {
	if name == "2_b.up.sql" {
		f.second <- struct{}{}
	}
	return f.MapFS.Open(name)
}

func TestGolangMigrateStopsAfterALostLock(t *testing.T) {
	locker := redlocktest.Start(t).Locker(redlock.NodeTimeout(8 * time.Second))
	second := make(chan struct{}, 10)
	source, err := iofs.New(files{fstest.MapFS{
		"1_a.up.sql": {Data: []byte("first")}, "2_b.up.sql": {}, // golang-migrate would leak the reader of a second file with content
	}, second}, ".")
	require.NoError(t, err)
	stub, err := databasestub.WithInstance(nil, nil)
	require.NoError(t, err)
	var m *migrate.Migrate
	m, err = migrate.NewWithInstance("files", source, "stub", driver{stub, func() {
		<-second // from now on the reader, which would otherwise take the signal, waits
		go locker.Close()
		require.Eventually(t, func() bool { return len(m.GracefulStop) == 1 }, time.Minute, time.Millisecond)
	}})
	require.NoError(t, err)
	m.PrefetchMigrations = 0
	assert.ErrorIs(t, migrateUp(t.Context(), locker, m), redlock.ErrClosed)
	assert.Equal(t, []string{"first"}, stub.(*databasestub.Stub).MigrationSequence)
}
