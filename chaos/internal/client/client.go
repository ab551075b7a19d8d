// Package client is a program that needs locks, in a process of its own: its goroutines acquire,
// work, write to the register and release, until standard input ends. It writes its history to
// standard output. It takes its locks from a redlock.Locker, a daemon, another library, or a program
// that speaks chaos/PROTOCOL.md.
//
// The client works only while it believes that it has its lock. Like every program, it has one
// flaw: time passes between its last look at the lock and the write.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// env is the variable with the configuration of a client.
const env = "REDQUORUM_CHAOS_CLIENT"

// callers is the number of goroutines of a client. With another library a client has one lock at a
// time.
const callers = 3

// A Config is the work of a client.
type Config struct {
	Who      int // number of the client; no two processes have the same number
	URLs     []string
	Register string // address
	Locks    []history.Lock
	Names    []string
	Permits  string // the name with permits
	Seed     uint64
	TTL      time.Duration
	Guard    bool             // MemoryGuard
	Work     [2]time.Duration // bounds of the time a lock is held, drawn uniformly

	// Other replaces this module's library by one of Libraries, or by a command. sh runs the command
	// in the process group of the client, so faults hit both.
	Other string

	Run  string // the path of redlock, if "redlock run" gives the locks
	Over string // the address of a daemon that gives the locks over HTTP; empty: none
	// Daemon is the path of redlock. A process with a Daemon is the daemon, and takes no locks.
	Daemon string

	// // ClockOffset sets this client's wall clock ahead. Fencing tokens come from that clock, but
	// must // not depend on it.
	ClockOffset time.Duration
}

// Main runs this process as a client if it was started as one, until its standard input ends. Then
// Main releases the locks.
func Main() (is bool, err error) {
	text, is := os.LookupEnv(env)
	if !is {
		return false, nil
	}
	var c Config
	if err = json.Unmarshal([]byte(text), &c); err == nil {
		err = c.run()
	}
	return true, err
}

// A lock has the methods that the work under it needs.
type lock interface {
	Context() context.Context
	Remaining() time.Duration
	Fence() int64
	Permit() int
	Release(context.Context) error
}

// A grant is the common part of locks from outside of this process.
type grant struct {
	ctx    context.Context
	end    context.CancelCauseFunc // of ctx
	fence  int64
	permit int
}

func (g *grant) Context() context.Context { return g.ctx }
func (g *grant) Fence() int64             { return g.fence }
func (g *grant) Permit() int              { return g.permit }

// A giver is a source of locks.
type giver interface {
	acquire(context.Context, demand) (lock, error)
	Close() error
}

// A client is one process.
type client struct {
	Config
	log     *history.Log
	locks   giver
	callers int // goroutines
	ops     atomic.Int64
}

func (c Config) run() error {
	if c.Daemon != "" {
		return runDaemon(c)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()

	cl := &client{Config: c, log: history.NewLog(os.Stdout)}
	if err := cl.open(); err != nil {
		return err
	}
	errs := make([]error, cl.callers)
	var callers sync.WaitGroup
	for i := range errs {
		callers.Go(func() {
			chance := rand.New(rand.NewPCG(c.Seed, uint64(c.Who*1000+i)))
			for errs[i] == nil && ctx.Err() == nil {
				errs[i] = cl.cycle(ctx, chance)
			}
		})
	}
	callers.Wait()
	return errors.Join(append(errs, cl.locks.Close())...)
}

// open opens the giver.
func (c *client) open() error {
	if c.Other != "" {
		l, known, err := c.openLibrary()
		if c.locks, c.callers, c.Locks = l, 1, []history.Lock{history.Plain}; l.fenced {
			c.Locks[0] = history.Fenced
		}
		if !known {
			c.locks, l.about = runner{c.Config, c.Config.byProgram}, c.Other
		}
		return errors.Join(err, c.log.Add(history.Event{At: history.Now(), Kind: history.Ready, Who: c.Who, Text: l.about}))
	}
	if c.Run != "" {
		c.locks, c.callers, c.Locks = runner{c.Config, c.Config.byRun}, callers, []history.Lock{history.Fenced}
		return nil
	}
	if c.Over != "" {
		c.locks, c.callers = served{c.Over, c.TTL, &http.Client{}}, callers
		return c.log.Add(history.Event{At: history.Now(), Kind: history.Ready, Who: c.Who, Text: history.OverHTTP})
	}
	l, err := c.locker(redlock.MemoryGuard(c.Guard), sim.Wall(func() time.Time { return time.Now().Add(c.ClockOffset) }))
	c.locks, c.callers = locker{l}, callers
	return err
}

// cycle takes a lock, works, and releases the lock. Its error concerns the test setup, not locks.
func (c *client) cycle(ctx context.Context, chance *rand.Rand) error {
	sleep(ctx, between(chance, 0, 30*time.Millisecond)) // otherwise a busy process would keep the lock
	d := c.draw(chance)
	d.Who, d.Op, d.Kind = c.Who, c.ops.Add(1), history.Asked
	h := &hold{client: c, chance: chance, id: d.Event}
	h.note(d.Event)
	waiting, cancel := context.WithTimeout(ctx, 5*c.TTL)
	defer cancel()
	lock, err := c.locks.acquire(waiting, d)
	if errors.Is(err, errNoProgram) {
		return err
	}
	if err != nil {
		h.note(history.Event{Kind: history.Failed, Text: reason(err)})
		sleep(ctx, between(chance, 0, 50*time.Millisecond))
		return c.log.Err()
	}
	h.begin(lock)
	defer context.AfterFunc(lock.Context(), h.noteLoss)()
	if err := h.work(ctx); err != nil {
		return err
	}
	if of, can := lock.(*redlock.Lock); can && d.downgrade && h.look() {
		h.writes = "" // the holder is a reader from here on
		h.note(history.Event{Kind: history.Downgrading})
		h.note(history.Event{Kind: history.Downgraded, Text: reason(of.Downgrade(ctx))})
		if err := h.work(ctx); err != nil {
			return err
		}
	}
	h.look() // a lock without a deadline is known to be held until now
	h.note(history.Event{Kind: history.Leaving})
	err = lock.Release(context.WithoutCancel(ctx))
	h.note(history.Event{Kind: history.Released, Text: reason(err)})
	return c.log.Err()
}

// reason returns the kind of an error, as far as a caller can distinguish kinds, and its text after
// a colon. It returns "" for a nil error.
func reason(err error) string {
	if err == nil {
		return ""
	}
	if said, is := errors.AsType[refusal](err); is {
		return string(said)
	}
	for _, kind := range []struct {
		is   error
		says string
	}{
		{context.DeadlineExceeded, "waited too long"}, {context.Canceled, "end of the run"}, {redlock.ErrHeld, "held"},
		{redlock.ErrQuarantine, "no quorum, some in quarantine"}, {redlock.ErrNoQuorum, "no quorum"}, {redlock.ErrLost, "lost"},
	} {
		if errors.Is(err, kind.is) {
			return kind.says + ": " + err.Error()
		}
	}
	return "other: " + err.Error()
}

func between(chance *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(chance.Int64N(int64(to-from)+1))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A hold is one acquisition, and the work that is done under its lock.
type hold struct {
	id     history.Event // common fields of all its events
	client *client
	chance *rand.Rand
	lock   lock
	until  int64  // the latest recorded deadline
	writes string // the register's key; empty: the holder writes nothing
}

// note writes an event of the acquisition into the history.
func (h *hold) note(e history.Event) {
	e.At, e.Who, e.Op, e.Name, e.Names, e.Lock = history.Now(), h.id.Who, h.id.Op, h.id.Name, h.id.Names, h.id.Lock
	h.client.log.Add(e)
}

// deadline returns the end of the lock, according to this process, or zero if the lock has ended.
// It reads the clock first, so that a pause before the second reading makes the deadline earlier.
func (h *hold) deadline() int64 {
	now := history.Now()
	if left := h.lock.Remaining(); left > 0 {
		return now + int64(left)
	}
	return 0
}

// begin notes the granted lock. A writer with a token writes with it. A program without a token
// writes too, to show the damage to the resource.
func (h *hold) begin(lock lock) {
	h.lock = lock
	h.until = h.deadline()
	if h.id.Lock.HasToken() || h.client.Other != "" {
		h.writes = history.Slot(h.id.Name, lock.Permit())
	}
	h.note(history.Event{Kind: history.Granted, Permit: lock.Permit(), Token: lock.Fence(), Until: h.until})
}

// look reports whether the lock is held, and notes the deadline if it is later than before.
func (h *hold) look() bool {
	until := h.deadline()
	// Two readings differ by the time between them; a renewal adds a third of the TTL.
	if until > h.until+int64(h.client.TTL/100) {
		h.until = until
		h.note(history.Event{Kind: history.Extended, Until: until})
	}
	return until > 0
}

// noteLoss notes that the lock was lost, if it was.
func (h *hold) noteLoss() {
	if cause := context.Cause(h.lock.Context()); errors.Is(cause, redlock.ErrLost) {
		h.note(history.Event{Kind: history.Lost, Text: cause.Error()})
	}
}

// work looks at the lock, prepares something, and writes it, repeatedly. Usually it is one write, so
// that locks change hands often. Sometimes work takes longer than a lease without renewal.
func (h *hold) work(ctx context.Context) error {
	work := h.client.Work
	span := work[0]
	switch n := h.chance.IntN(20); {
	case n == 0:
		span = between(h.chance, work[1], 2*h.client.TTL)
	case n < 8:
		span = between(h.chance, work[0], work[1])
	}
	for enough := time.Now().Add(span); h.look(); {
		sleep(ctx, between(h.chance, 0, 50*time.Millisecond))
		// A pause at this point is the reason that fencing is necessary.
		if h.writes != "" {
			write := history.Event{Name: h.writes, Token: h.lock.Fence(), Who: h.id.Who, Op: h.id.Op}
			if err := sendWrite(h.client.Register, write); err != nil {
				return err
			}
		}
		if ctx.Err() != nil || time.Now().After(enough) {
			break
		}
	}
	return nil
}
