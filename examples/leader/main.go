package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

// open is what each candidate does when it starts.
func open(urls []string) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes,
		redlock.Fenced(),                          // each term has a number, above all before
		redlock.TTL(time.Second),                  // so long is nobody leading if the leader vanishes
		redlock.NodeTimeout(300*time.Millisecond), // all of this is on one machine, which may be busy
	)
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	e, err := newElection(ctx, out, urls)
	if err != nil {
		return err
	}
	defer e.close()
	if err := e.play(ctx); err != nil {
		return err
	}
	if e.overlaps > 0 {
		return errors.New("two led at the same time")
	}
	fmt.Fprintf(out, "%d terms, one leader at a time\n", len(e.terms))
	return nil
}
