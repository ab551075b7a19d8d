// Package client is a program that needs locks, as a process of its own: a redlock.Locker, and some
// goroutines that acquire, work, write to the register and release, until standard input ends. It
// writes its history to standard output.
//
// It does what its lock allows, and no more, with the flaw that every program has: between its last
// look at the lock and the write some time passes.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/register"
	"github.com/redquorum/redquorum/internal/redlocktest"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// env is the variable with the configuration of a client.
const env = "REDQUORUM_CHAOS_CLIENT"

// A Config is the work of a client.
type Config struct {
	Who      int // its number; no two processes have the same
	URLs     []string
	Register string // address
	Names    []string
	Seed     uint64
	TTL      time.Duration
	Guard    bool // MemoryGuard
	Callers  int  // goroutines

	// Work bounds how long a lock is held, drawn evenly.
	Work [2]time.Duration

	// ClockOffset is how far this client's wall clock is ahead. Fencing tokens are taken from it,
	// and must not depend on it.
	ClockOffset time.Duration
}

// FromEnv returns the configuration if this process was started to be a client.
func FromEnv() (c Config, is bool, err error) {
	text, is := os.LookupEnv(env)
	if !is {
		return c, false, nil
	}
	return c, true, json.Unmarshal([]byte(text), &c)
}

func (c Config) environ() (string, error) {
	text, err := json.Marshal(c)
	return env + "=" + string(text), err
}

// A client is one process.
type client struct {
	Config
	log      *history.Log
	locker   *redlock.Locker
	register *register.Client
	ops      atomic.Int64
}

// Run runs a client until in ends. It releases its locks before it returns.
func Run(c Config, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // ends with the process
		io.Copy(io.Discard, in)
		stop()
	}()

	reg, err := register.Dial(c.Register)
	if err != nil {
		return err
	}
	defer reg.Close()
	nodes, err := pool.Open(c.URLs...)
	if err != nil {
		return err
	}
	locker, err := redlock.New(nodes, redlock.TTL(c.TTL), redlock.Fenced(), redlock.MemoryGuard(c.Guard),
		redlocktest.Wall(func() time.Time { return time.Now().Add(c.ClockOffset) }))
	if err != nil {
		return err
	}
	cl := &client{Config: c, log: history.NewLog(out), locker: locker, register: reg}
	errs := make([]error, c.Callers)
	var callers sync.WaitGroup
	for i := range errs {
		callers.Go(func() { errs[i] = cl.call(ctx, rand.New(rand.NewPCG(c.Seed, uint64(c.Who*1000+i)))) })
	}
	callers.Wait()
	return errors.Join(append(errs, locker.Close())...)
}

// call is one caller: it makes one cycle after the other.
func (c *client) call(ctx context.Context, chance *rand.Rand) error {
	for ctx.Err() == nil {
		if err := c.cycle(ctx, chance); err != nil {
			return err
		}
		sleep(ctx, between(chance, 0, 30*time.Millisecond)) // or a busy process would keep the lock to itself
	}
	return nil
}

// cycle takes a lock, works, and gives it back. Its error is about the apparatus, not about locks.
func (c *client) cycle(ctx context.Context, chance *rand.Rand) error {
	name := c.Names[chance.IntN(len(c.Names))]
	h := &hold{client: c, chance: chance, id: history.Event{Who: c.Who, Op: c.ops.Add(1), Name: name}}
	h.note(history.Asked, "")
	waiting, cancel := context.WithTimeout(ctx, 5*c.TTL)
	defer cancel()
	// Half of the leases are fixed: they end in the middle of the work if that takes long. And half
	// of the calls do not back off, so that votes are split, and locks taken the moment they are
	// free.
	opts := []redlock.Option{redlock.Renew(chance.IntN(2) == 0)}
	if chance.IntN(2) == 0 {
		opts = append(opts, redlock.RetryInterval(15*time.Millisecond))
	}
	lock, err := c.locker.Acquire(waiting, name, opts...)
	if err != nil {
		h.note(history.Failed, reason(err))
		sleep(ctx, between(chance, 0, 50*time.Millisecond))
		return c.log.Err()
	}
	h.begin(lock)
	defer context.AfterFunc(lock.Context(), h.noteLoss)()
	if err := h.work(ctx); err != nil {
		return err
	}
	h.note(history.Leaving, "")
	if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
		h.note(history.Released, reason(err))
	} else {
		h.note(history.Released, "")
	}
	return c.log.Err()
}

// reason is the kind of an error, as far as a caller can know it, and its text behind a colon.
func reason(err error) string { return kind(err) + ": " + err.Error() }

func kind(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "waited too long"
	case errors.Is(err, context.Canceled):
		return "end of the run"
	case errors.Is(err, redlock.ErrHeld):
		return "held"
	case errors.Is(err, redlock.ErrQuarantine):
		return "no quorum, some in quarantine"
	case errors.Is(err, redlock.ErrNoQuorum):
		return "no quorum"
	case errors.Is(err, redlock.ErrLost):
		return "lost"
	}
	return "other"
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
	id     history.Event // Who, Op and Name of all its events
	client *client
	chance *rand.Rand
	lock   *redlock.Lock
	until  int64 // the latest deadline that was written down
}

// note writes an event into the history.
func (h *hold) note(kind history.Kind, text string) {
	e := h.id
	e.At, e.Kind, e.Text = history.Now(), kind, text
	h.client.log.Add(e)
}

// deadline is when the lock ends as far as this process can know, or zero if it has ended. The
// clock is read first: a pause before the second reading makes the deadline an earlier one.
func (h *hold) deadline() int64 {
	now := history.Now()
	if left := h.lock.Remaining(); left > 0 {
		return now + int64(left)
	}
	return 0
}

// begin notes the lock that was granted.
func (h *hold) begin(lock *redlock.Lock) {
	h.lock = lock
	h.until = h.deadline()
	e := h.id
	e.Kind, e.Token, e.Votes, e.Until = history.Granted, lock.Fence(), lock.Votes(), h.until
	e.At = history.Now()
	h.client.log.Add(e)
}

// look reports whether the lock is held, and notes a later deadline than before.
func (h *hold) look() bool {
	until := h.deadline()
	// Two readings differ by the time between them; a renewal adds a third of the TTL.
	if until > h.until+int64(h.client.TTL/100) {
		h.until = until
		e := h.id
		e.At, e.Kind, e.Until = history.Now(), history.Extended, until
		h.client.log.Add(e)
	}
	return until > 0
}

// noteLoss notes that the lock was lost, if it was.
func (h *hold) noteLoss() {
	if cause := context.Cause(h.lock.Context()); errors.Is(cause, redlock.ErrLost) {
		h.note(history.Lost, cause.Error())
	}
}

// span draws how long the lock is needed. It is mostly one write, so that locks change hands often;
// sometimes it is longer than a lease that is not renewed.
func (h *hold) span() time.Duration {
	work := h.client.Work
	switch n := h.chance.IntN(20); {
	case n < 12:
		return work[0]
	case n == 12:
		return between(h.chance, work[1], 2*h.client.TTL)
	}
	return between(h.chance, work[0], work[1])
}

// work looks at the lock, prepares something, and writes it, again and again.
func (h *hold) work(ctx context.Context) error {
	span := h.span()
	for enough := time.Now().Add(span); h.look(); {
		sleep(ctx, between(h.chance, 0, 50*time.Millisecond))
		// A pause somewhere here is what fencing is for.
		if _, err := h.client.register.Write(h.id.Name, h.lock.Fence(), h.id.Who, h.id.Op); err != nil {
			return err
		}
		if ctx.Err() != nil || time.Now().After(enough) {
			break
		}
	}
	return nil
}
