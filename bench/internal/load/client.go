package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

// clientEnv marks a process as a client.
const clientEnv = "REDQUORUM_BENCH_CLIENT"

// IsClient reports whether Run has started this process. In that case main must call Main first.
func IsClient() bool { return os.Getenv(clientEnv) != "" }

const (
	stopLimit    = 8 * time.Second  // limit for the end of a process after the order to stop
	connectLimit = 30 * time.Second // limit for connecting, in addition to one TTL during which new servers do not vote
	returnLimit  = 5 * time.Second  // limit for calls of the library that are in progress at the end of the trial
)

// find is a variable for the subjects of tests.
var find = subject.Find

// Main runs a client process and returns its exit code.
func Main() int {
	signal.Ignore(os.Interrupt) // an interrupt at the terminal reaches all processes; the parent ends this one
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr // libraries that print must not disturb the protocol
	c := client{clock: newClock()}
	if err := in.Decode(&c.job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancelCause(context.Background())
	begin := make(chan int64, 1)
	go func() {
		var at int64
		if in.Decode(&at) == nil {
			begin <- at
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		stop(errors.New("told to stop"))
		time.AfterFunc(stopLimit, func() { os.Exit(1) })
	}()
	c.ready = func() (time.Time, error) {
		if err := out.Encode(result{}); err != nil {
			return time.Time{}, err
		}
		select {
		case at := <-begin:
			return c.clock.time(at), nil
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
	r, err := c.run(ctx)
	if err != nil {
		r = result{Error: err.Error()}
	}
	if out.Encode(r) != nil {
		return 1
	}
	return 0
}

// A client is one client process.
type client struct {
	job   Job
	clock clock
	ready func() (start time.Time, err error) // tells the parent
}

func (c *client) run(ctx context.Context) (r result, err error) {
	specs, err := find([]string{c.job.Subject})
	if err != nil {
		return r, err
	}
	first, end := c.job.share(c.job.Load.Callers)
	cfg := subject.Config{TTL: c.job.Load.TTL, Callers: end - first}
	held := newHeldLocks(c.job)
	before := heap()
	opening, cancel := context.WithTimeout(ctx, connectLimit+cfg.TTL)
	defer cancel()
	library, err := specs[0].Open(opening, c.job.URLs, cfg)
	if err != nil {
		return r, err
	}
	if c.job.Load.Held > 0 {
		r, err = held.run(ctx, c, library, before)
	} else {
		r, err = c.cycle(ctx, library, first, end)
	}
	closing, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	all(closing, 1, func(int) { _ = library.Close() })
	return r, err
}

// all runs f in n goroutines. It returns when all have ended, but at most returnLimit after the end
// of ctx. A call that hangs in a library ends with the process.
func all(ctx context.Context, n int, f func(i int)) {
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { f(i) })
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(returnLimit):
		}
	}
}

// measure calls run at start. It returns the CPU time and the allocations of this process from
// start to end.
func measure(ctx context.Context, start, end time.Time, run func()) (cpu time.Duration, allocs int64, err error) {
	runtime.GC()
	SleepUntil(ctx, start)
	cpu, allocs = usage()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		SleepUntil(ctx, end)
		c, a := usage()
		cpu, allocs = c-cpu, a-allocs
	}()
	run()
	<-stopped
	return cpu, allocs, context.Cause(ctx)
}

func usage() (cpu time.Duration, allocs int64) {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // with these arguments it cannot fail
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(m.Mallocs)
}

// heap returns the memory in use without garbage.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees memory that finalizers and pools kept during the first run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// SleepUntil reports whether it slept to the end. It returns earlier if ctx ends.
func SleepUntil(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
