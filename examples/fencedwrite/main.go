package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

// open is what Alice and Bob do when they start, each in a process of their own.
func open(urls []string) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes,
		redlock.Fenced(),                          // every lock comes with a token
		redlock.TTL(time.Second),                  // short, since we wait for its end
		redlock.NodeTimeout(400*time.Millisecond), // all of this is on one machine, which may be busy
	)
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	var register Register
	e, err := play(ctx, urls, &register)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Alice gets the lock with token %d, and is paused\n", e.alice)
	fmt.Fprintf(out, "her lock has ended: %v\n", e.lost)
	fmt.Fprintf(out, "Bob gets it with token %d, and writes\n", e.bob)
	fmt.Fprintf(out, "Alice wakes up, and writes: %v\n", e.late)
	fmt.Fprintf(out, "the register holds %q\n", register.Read())
	if !errors.Is(e.late, fence.ErrStale) || register.Read() != "from Bob" {
		return errors.New("the late write should have been refused")
	}
	return nil
}
