package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// clientEnv marks a process as a client. It holds nothing else.
const clientEnv = "REDQUORUM_BENCH_CLIENT"

// IsClient is true in the processes that Run starts. Their main calls Main first thing.
func IsClient() bool { return os.Getenv(clientEnv) != "" }

// stopLimit bounds how long a client process that must stop may take to release its locks.
const stopLimit = 2 * time.Second

// Main is a client process.
func Main() (exit int) {
	// An interrupt at the terminal reaches all processes. The parent ends this one.
	signal.Ignore(os.Interrupt)
	out := os.Stdout
	os.Stdout = os.Stderr // libraries that print must not get into the protocol
	if err := serve(os.Stdin, out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve does what the parent writes to in, and writes its messages to out. It may leave goroutines
// behind: the process ends with it.
func serve(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	lines := json.NewDecoder(in)
	var job Job
	if err := lines.Decode(&job); err != nil {
		return fmt.Errorf("load: no job: %w", err)
	}
	begin := make(chan int64, 1)
	go func() {
		var nanos int64
		if lines.Decode(&nanos) == nil {
			begin <- nanos
			_ = lines.Decode(&nanos) // no more is written: this returns when the parent closes stdin
		}
		cancel(errors.New("told to stop"))
		time.AfterFunc(stopLimit, func() { os.Exit(1) })
	}()

	c := &client{job: job, scrub: endpoint.NewScrubber(job.URLs), clock: newClock(), begin: begin, out: json.NewEncoder(out)}
	result, err := c.run(ctx)
	if err != nil {
		result = message{Error: c.scrub.Clean(err.Error())}
	}
	return c.send(result)
}

// A client is one client process.
type client struct {
	job   Job
	scrub endpoint.Scrubber
	clock clock
	begin <-chan int64 // from the parent
	out   *json.Encoder
}

func (c *client) send(m message) error {
	if err := c.out.Encode(m); err != nil {
		return fmt.Errorf("load: the parent does not listen: %w", err)
	}
	return nil
}

// find is a variable for the tests' own subjects.
var find = subject.Find

func (c *client) run(ctx context.Context) (message, error) {
	specs, err := find([]string{c.job.Subject})
	if err != nil {
		return message{}, err
	}
	spec, mine := specs[0], c.job.share(c.job.Load.Callers)
	cfg := subject.Config{TTL: c.job.Load.TTL, Callers: mine.end - mine.first}
	switch {
	case spec.Drive != nil:
		return c.driveTrial(ctx, spec, cfg)
	case c.job.Load.Held > 0:
		return c.holdTrial(ctx, spec, cfg)
	}
	return c.cycleTrial(ctx, spec, cfg, mine)
}

// ready reports to the parent, and returns the moment to begin, which is to come.
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

// connectLimit bounds Open, beside a TTL, for which new servers do not vote.
const connectLimit = 30 * time.Second

// open connects, and returns what closes the connections in a bounded time: a library that hangs
// does not keep the process.
func (c *client) open(ctx context.Context, spec subject.Spec, cfg subject.Config) (subject.Client, func(), error) {
	limit := connectLimit + cfg.TTL
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not connected within %v", limit))
	defer cancel()
	client, err := spec.Open(ctx, c.job.URLs, cfg)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, nil, fmt.Errorf("%s: %w", spec.Name, err)
	}
	return client, func() { // ctx has ended by then, and servers may be gone
		start(1, func(int) { _ = client.Close() }).wait(ctx, cancel)
	}, nil
}

// Goroutines that are in the library at the end get returnLimit to come back from it, and after the
// end of their contexts cancelLimit.
const (
	returnLimit = 5 * time.Second
	cancelLimit = time.Second
)

// A crew is goroutines that call a library, which may not return.
type crew struct {
	running atomic.Int64
	all     chan struct{} // closed when all have ended
}

// start runs f in n goroutines.
func start(n int, f func(i int)) *crew {
	g := &crew{all: make(chan struct{})}
	g.running.Store(int64(n))
	for i := range n {
		go func() {
			f(i)
			if g.running.Add(-1) == 0 {
				close(g.all)
			}
		}()
	}
	return g
}

// wait returns how many have not ended some time after ctx. They end with the process.
func (g *crew) wait(ctx context.Context, cancel func()) (stuck int) {
	select {
	case <-g.all:
		return 0
	case <-ctx.Done():
	}
	for _, bound := range []time.Duration{returnLimit, cancelLimit} {
		select {
		case <-g.all:
		case <-time.After(bound):
		}
		cancel()
	}
	return int(g.running.Load())
}
