package redlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A logbook collects the records at or above a level.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newLogbook(level slog.Level) (*logbook, *slog.Logger) {
	b := &logbook{}
	return b, slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: level}))
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns and discards the collected records.
func (b *logbook) take(t *testing.T) (records []map[string]any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		records = append(records, r)
	}
	b.text.Reset()
	return records
}

// titles returns "LEVEL message" of each record.
func titles(records []map[string]any) (titles []string) {
	for _, r := range records {
		titles = append(titles, r["level"].(string)+" "+strings.TrimPrefix(r["msg"].(string), "redlock: "))
	}
	return titles
}

// TestLostLockIsLoggedAsAnError: the record has the name and the reason, however the loss is
// noticed.
func TestLostLockIsLoggedAsAnError(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		book, log := newLogbook(slog.LevelInfo)
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Log(log), redlock.Renew(false))
		expired := take(t, l, "x")
		<-expired.Context().Done()
		time.Sleep(rtt)
		records := book.take(t)
		require.Equal(t, []string{"ERROR lock lost"}, titles(records))
		assert.Equal(t, "x", records[0]["name"])
		assert.Contains(t, records[0]["err"], "not extended before its deadline")
		assert.EqualValues(t, validity+rtt, records[0]["elapsed"])

		lock := take(t, l, "y")
		onAll(w, func(s *sim.Server) { s.Del("y") })
		assert.ErrorIs(t, lock.Release(t.Context()), redlock.ErrLost)
		assert.Equal(t, []string{"ERROR lock was lost before its release"}, titles(book.take(t)))
	})
}

// TestNormalOperationIsNotLogged: above Debug there are no records of locks, of contention, or of
// callers and Lockers that end.
func TestNormalOperationIsNotLogged(t *testing.T) {
	life := func(t *testing.T, w *sim.World, l *redlock.Locker) (values []string) {
		take(t, l, "z") // this lock is held until Close
		lock := take(t, l, "x")
		time.Sleep(rtt)
		got := waits(t.Context(), t, l)
		require.NoError(t, lock.Release(t.Context()))
		lock = <-got
		time.Sleep(ttl) // so that the lock is renewed
		other, _ := open(t, w, redlock.TTL(ttl))
		take(t, other, "y")
		assert.ErrorIs(t, errOf(l.TryAcquire(t.Context(), "y")), redlock.ErrHeld)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, errOf(l.Acquire(ctx, "x")), context.DeadlineExceeded)
		assert.ErrorIs(t, lock.Release(canceled(t)), context.Canceled)
		l.Close()
		assert.ErrorIs(t, errOf(l.TryAcquire(t.Context(), "x")), redlock.ErrClosed)
		return []string{lock.Value()}
	}
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		book, log := newLogbook(slog.LevelInfo)
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Log(log))
		life(t, w, l)
		assert.Empty(t, book.take(t))
	})
	simulateCase(t, "debug", 3, func(t *testing.T, w *sim.World) {
		book, log := newLogbook(slog.LevelDebug)
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Log(log))
		values := life(t, w, l)
		time.Sleep(rtt)
		records := book.take(t)
		for _, v := range values {
			assert.NotContains(t, fmt.Sprint(records), v, "the value of a lock is nobody's business")
		}
		all := titles(records)
		for _, title := range []string{
			"a node's vote", "try succeeded", "try failed", "lock acquired", "lock not acquired", "lock extended", "lock released",
			"release not confirmed",
		} {
			assert.Contains(t, all, "DEBUG "+title)
		}
		assert.Equal(t, 1, strings.Count(strings.Join(all, "\n"), "release not confirmed"), "what a Close releases need not be")
		assert.Equal(t, map[string]any{
			"level": "DEBUG", "msg": "redlock: a node's vote", "name": "z", "op": "acquire", "node": records[0]["node"], "outcome": "granted",
			"elapsed": float64(rtt), "time": records[0]["time"],
		}, records[0])
		for _, r := range records {
			if r["msg"] == "redlock: lock acquired" {
				assert.GreaterOrEqual(t, r["votes"], 2.0)
				assert.EqualValues(t, validity, r["remaining"])
				break
			}
		}
	})
}

// TestNewTTLIsNotAFault: servers grant before a TTL is on their record. These votes do not count,
// but the next ones do.
func TestNewTTLIsNotAFault(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		settled(t, w, 1)
		time.Sleep(15 * time.Minute) // so that the entries have expired
		book, log := newLogbook(slog.LevelDebug)
		l, _ := guarded(t, w, redlock.Log(log))
		take(t, l, "x")
		early := 0
		for _, r := range book.take(t) {
			assert.Equal(t, "DEBUG", r["level"], r)
			if r["err"] != nil {
				early++
				assert.Equal(t, "granted", r["outcome"])
			}
		}
		assert.NotZero(t, early, "there were such votes, and the log says why they did not count")
	})
}

// TestOutageIsLoggedOnceAMinute: under any load the record has each node's fault. The end of an
// outage is logged, too. The records are the same for all locks, so that collectors can merge them.
func TestOutageIsLoggedOnceAMinute(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		book, log := newLogbook(slog.LevelInfo)
		l, _ := open(t, w, redlock.TTL(10*time.Minute), redlock.Log(log))
		held := take(t, l, "y")
		w.Servers()[0].Crash()
		w.Servers()[1].Crash()
		time.Sleep(rtt)
		book.take(t)
		const minutes = 3
		for i := range minutes * 60 {
			_, err := l.TryAcquire(t.Context(), fmt.Sprint("x", i))
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			time.Sleep(time.Second - rtt)
		}
		count := map[string]int{}
		for _, r := range book.take(t) {
			assert.NotRegexp(t, `x\d`, r["err"])
			delete(r, "time")
			delete(r, "err")
			count[fmt.Sprint(r)]++
		}
		require.Len(t, count, 3, count)
		for _, of := range []string{"a node's fault node:node1", "a node's fault node:node2", "try failed"} {
			logged := count["map[level:WARN msg:redlock: "+of+"]"]
			assert.True(t, 1 < logged && logged <= minutes+1, "%s: %d", of, logged)
		}

		time.Sleep(time.Minute)
		book.take(t)
		assert.ErrorIs(t, held.Release(t.Context()), redlock.ErrNoQuorum)
		assert.Contains(t, titles(book.take(t)), "WARN release not confirmed")

		w.Servers()[0].Restart()
		w.Servers()[1].Restart()
		time.Sleep(time.Minute)
		book.take(t)
		for range 1000 {
			require.NoError(t, take(t, l, "x").Release(t.Context()))
		}
		var back []any
		for _, r := range book.take(t) {
			assert.Equal(t, "INFO a node answers again", titles([]map[string]any{r})[0])
			back = append(back, r["node"])
		}
		assert.ElementsMatch(t, []any{"node1", "node2"}, back, "told once each")
	})
}

// TestRecordsHaveTheContextOfTheCall: handlers can add a trace to the records.
func TestRecordsHaveTheContextOfTheCall(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		given := &contexts{}
		l, _ := open(t, w, redlock.Log(slog.New(given)))
		ctx := context.WithValue(t.Context(), callerKey{}, "caller")
		require.NoError(t, l.Do(ctx, "x", func(context.Context) error { return nil }))
		time.Sleep(rtt)
		assert.Greater(t, given.seen, 5)
		assert.Zero(t, given.foreign)
	})
}

// A contexts is a handler that checks the contexts of its records.
type contexts struct{ seen, foreign int }

func (c *contexts) Enabled(ctx context.Context, _ slog.Level) bool {
	c.seen++
	if ctx.Value(callerKey{}) == nil {
		c.foreign++
	}
	return true
}

func (c *contexts) Handle(context.Context, slog.Record) error { return nil }

func (c *contexts) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c *contexts) WithGroup(string) slog.Handler { return c }

// TestUnloggedEventAllocatesNothing: at the default level nearly every event is unlogged.
func TestUnloggedEventAllocatesNothing(t *testing.T) {
	_, log := newLogbook(slog.LevelInfo)
	journal := redlock.ObserverOf(redlock.Log(log))
	held := error(&redlock.QuorumError{Err: redlock.ErrHeld})
	down := error(&redlock.QuorumError{Err: redlock.ErrNoQuorum})
	fault := redlock.Event{Kind: redlock.EventVote, Context: t.Context(), Node: "node1", Outcome: protocol.Failed, Err: redlock.ErrClosed}
	journal.Observe(fault) // this event is logged
	journal.Observe(redlock.Event{Kind: redlock.EventAttempt, Context: t.Context(), Err: down})
	for name, e := range map[string]redlock.Event{
		"a vote":           {Kind: redlock.EventVote, Node: "node2", Op: protocol.OpAcquire, Outcome: protocol.Granted},
		"another fault":    fault,
		"a failed try":     {Kind: redlock.EventAttempt, Err: held},
		"another outage":   {Kind: redlock.EventAttempt, Err: down},
		"an acquisition":   {Kind: redlock.EventAcquired, Votes: 3},
		"none":             {Kind: redlock.EventNotAcquired, Err: held},
		"an extension":     {Kind: redlock.EventExtended},
		"a release":        {Kind: redlock.EventReleased},
		"one by the close": {Kind: redlock.EventReleased, Err: redlock.ErrClosed},
	} {
		e.Context = t.Context()
		fewest := math.Inf(1)
		for range 10 { // other work of the process allocates, too
			fewest = min(fewest, testing.AllocsPerRun(100, func() { journal.Observe(e) }))
		}
		assert.Zero(t, fewest, name)
	}
}
