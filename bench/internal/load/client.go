package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

// clientEnv marks a process as a client. It holds nothing else.
const clientEnv = "REDQUORUM_BENCH_CLIENT"

// IsClient is true in the processes that Run starts. Their main calls Main first thing.
func IsClient() bool { return os.Getenv(clientEnv) != "" }

// stopping bounds how long a client process that is told to stop may take to
// release its locks.
const stopping = 2 * time.Second

// Main is a client process.
func Main() (exit int) {
	// An interrupt at the terminal reaches all processes. The parent ends this one.
	signal.Ignore(os.Interrupt)
	out := os.Stdout
	os.Stdout = os.Stderr // what libraries print is not for the parent to understand
	if err := serve(os.Stdin, out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve does what the parent says on in, and tells it on out how that ended. It
// may leave goroutines behind: the process ends with it.
func serve(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	lines := json.NewDecoder(in)
	var a assignment
	if err := lines.Decode(&a); err != nil {
		return fmt.Errorf("load: no assignment: %w", err)
	}
	begin := make(chan int64, 1)
	go func() {
		var b beginning
		if lines.Decode(&b) == nil {
			begin <- b.Begin
			_ = lines.Decode(&b) // there is nothing more but the end
		}
		cancel(errors.New("told to stop"))
		time.AfterFunc(stopping, func() { os.Exit(1) })
	}()

	c := &client{assignment: a, scrub: newScrubber(a.Job.URLs), clock: newClock(), begin: begin, out: json.NewEncoder(out)}
	if err := c.run(ctx); err != nil {
		return c.send(message{Error: c.scrub.clean(err.Error())})
	}
	return nil
}

// A client is one client process.
type client struct {
	assignment
	scrub scrubber
	clock clock
	begin <-chan int64 // the parent's word

	mu  sync.Mutex
	out *json.Encoder
}

func (c *client) send(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(m); err != nil {
		return fmt.Errorf("load: the parent does not listen: %w", err)
	}
	return nil
}

// find is a variable for the tests' own subjects.
var find = func(name string) (subject.Spec, error) {
	specs, err := subject.Find([]string{name})
	if err != nil {
		return subject.Spec{}, err
	}
	return specs[0], nil
}

func (c *client) run(ctx context.Context) error {
	spec, err := find(c.Job.Subject)
	if err != nil {
		return err
	}
	first, end := c.Job.share(c.Job.Load.Callers, c.Process)
	cfg := subject.Config{TTL: c.Job.Load.TTL, Callers: end - first}
	switch {
	case spec.Drive != nil:
		return c.drive(ctx, spec, cfg)
	case c.Job.Load.Held > 0:
		return c.hold(ctx, spec, cfg)
	}
	return c.cycles(ctx, spec, cfg, first)
}

// ready tells the parent so, and returns the moment to begin, which is to come.
func (c *client) ready(ctx context.Context) (time.Time, error) {
	if err := c.send(message{Ready: true}); err != nil {
		return time.Time{}, err
	}
	select {
	case nanos := <-c.begin:
		return c.clock.moment(nanos), nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// connecting bounds Open. It includes the wait for servers that do not vote yet.
const connecting = 30 * time.Second

// open connects, and returns what closes the connections in a bounded time:
// a library that hangs does not keep the process.
func (c *client) open(ctx context.Context, spec subject.Spec, cfg subject.Config) (subject.Client, func(), error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connecting, fmt.Errorf("it was not connected within %v", connecting))
	defer cancel()
	client, err := spec.Open(ctx, c.Job.URLs, cfg)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, nil, fmt.Errorf("%s: %w", spec.Name, err)
	}
	return client, func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = client.Close() // of connections whose servers may be gone
		}()
		select {
		case <-done:
		case <-time.After(connecting / 10):
		}
	}, nil
}
