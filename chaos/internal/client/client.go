package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/register"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A client is one process.
type client struct {
	Config
	log      *history.Log
	locker   *redlock.Locker
	register *register.Client
	ops      atomic.Int64
}

// Run is the client's life: it ends, in good order, when in does.
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
		redlock.Wall(func() time.Time { return time.Now().Add(c.Skew) }))
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

// call is one caller: it takes one lock after the other.
func (c *client) call(ctx context.Context, chance *rand.Rand) error {
	for ctx.Err() == nil {
		if err := c.turn(ctx, chance); err != nil {
			return err
		}
		sleep(ctx, between(chance, 0, 30*time.Millisecond)) // or a busy process would keep the lock to itself
	}
	return nil
}

// turn takes a lock, works, and gives it back. An error is about the rig, not
// about locks.
func (c *client) turn(ctx context.Context, chance *rand.Rand) error {
	name := c.Names[chance.IntN(len(c.Names))]
	h := &holding{client: c, chance: chance, id: history.Event{Who: c.Who, Op: c.ops.Add(1), Name: name}}
	h.tell(history.Asked, "")
	waiting, cancel := context.WithTimeout(ctx, 5*c.TTL)
	defer cancel()
	// Half of the leases are fixed: they end in the middle of the work if that
	// takes long. And half of the calls are too impatient to back off, so that
	// votes are split, and locks taken the moment they are free.
	opts := []redlock.Option{redlock.Renew(chance.IntN(2) == 0)}
	if chance.IntN(2) == 0 {
		opts = append(opts, redlock.RetryInterval(15*time.Millisecond))
	}
	lock, err := c.locker.Acquire(waiting, name, opts...)
	if err != nil {
		h.tell(history.Failed, reason(err))
		sleep(ctx, between(chance, 0, 50*time.Millisecond))
		return c.log.Err()
	}
	h.granted(lock)
	defer context.AfterFunc(lock.Context(), h.ended)()
	if err := h.work(ctx); err != nil {
		return err
	}
	h.tell(history.Leaving, "")
	if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
		h.tell(history.Released, reason(err))
	} else {
		h.tell(history.Released, "")
	}
	return c.log.Err()
}

// reason sorts errors by what a caller can know from them, and says the rest
// behind a colon.
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
