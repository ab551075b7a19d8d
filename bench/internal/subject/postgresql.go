//go:build unix

package subject

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/redquorum/redquorum/bench/internal/backend"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func ofPostgreSQL() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "postgresql", Title: "PostgreSQL advisory locks, " + titled("pgx", "github.com/jackc/pgx/v5") + " (one server)", Single: true,
			Note: "pg_advisory_lock of a session for each caller, by prepared statements. One server, no consensus: what both cost. " +
				"The locks are in its memory alone, and gone with it. The TTL means nothing to it: a lock ends with its connection.",
		},
		Servers: backend.PostgreSQL, Renews: true,
		Open: openPostgreSQL,
	}
}

func openPostgreSQL(ctx context.Context, urls []string, cfg Config) (Client, error) {
	servers, err := addresses(urls, "postgresql")
	if err != nil {
		return nil, err
	}
	sessions := &sessions[*pgSession]{lock: lockPostgreSQL, outcome: pgOutcome}
	sessions.open = func(ctx context.Context) (*pgSession, error) { return dialPostgreSQL(ctx, servers[0]) }
	return sessions.start(ctx, cfg.Callers)
}

func lockPostgreSQL(ctx context.Context, s *pgSession, name string) (unlock func(context.Context) error, err error) {
	h := fnv.New64a() // the number that stands for the name
	h.Write([]byte(name))
	key := strconv.AppendInt(nil, int64(h.Sum64()), 10)
	_, err = s.call(ctx, pgLockFunc, key)
	return func(ctx context.Context) error {
		held, err := s.call(ctx, pgUnlockFunc, key)
		if err == nil && held != "t" {
			err = errNotHeld
		}
		return err
	}, err
}

var errNotHeld = errors.New("postgresql: the session did not hold the lock")

type pgSession struct{ conn *pgconn.PgConn }

func dialPostgreSQL(ctx context.Context, address string) (*pgSession, error) {
	conn, err := pgconn.Connect(ctx, backend.PostgresURL(address))
	if err != nil {
		return nil, err
	}
	s := &pgSession{conn}
	for _, f := range []string{pgLockFunc, pgUnlockFunc} {
		if _, err := conn.Prepare(ctx, f, "SELECT "+f+"($1)", nil); err != nil {
			s.end()
			return nil, err
		}
	}
	return s, nil
}

const (
	pgLockFunc   = "pg_advisory_lock"
	pgUnlockFunc = "pg_advisory_unlock"
)

// call runs one of the two functions, which must have one row of one value.
func (s *pgSession) call(ctx context.Context, function string, key []byte) (value string, err error) {
	r := s.conn.ExecPrepared(ctx, function, [][]byte{key}, nil, nil).Read()
	switch {
	case r.Err != nil:
		return "", r.Err
	case len(r.Rows) != 1 || len(r.Rows[0]) != 1:
		return "", errors.New("postgresql: an answer without a value")
	}
	return string(r.Rows[0][0]), nil
}

// lost is nil: a connection that nobody reads from does not notice its end.
func (s *pgSession) lost() <-chan struct{} { return nil }

func (s *pgSession) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx)
	<-s.conn.CleanupDone()
}

// pgOutcome tells whether the server could not be asked, or is about to end or to begin.
func pgOutcome(err error) string {
	if errors.Is(err, errNotHeld) {
		return record.Lost
	}
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Code[:2] != "57" { // operator intervention, and start
		return ""
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	return record.NoQuorum // of one
}
