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

const (
	processes = 3
	requests  = 25 // of each process, at the same time
	everybody = processes * requests
)

// open is what each process does when it starts.
func open(urls []string) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes,
		redlock.NodeTimeout(2*time.Second), // all of this is on one machine, which may be busy
		redlock.MemoryGuard(false),         // new servers would have no vote for a TTL; nothing but work is at stake
	)
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	s, err := newSite(urls)
	if err != nil {
		return err
	}
	defer s.close()

	cold, err := s.coldStart(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "nothing is cached: %d requests of %d processes miss, %d asks the database, all get %q\n",
		cold.answers(), processes, cold.loads, "version 1")

	s.expire()
	expired, err := s.expired(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "it expires:        %d requests are served version 1 meanwhile, %d asks the database and gets %q\n",
		expired.served["version 1"], expired.loads, "version 2")

	if cold.loads != 1 || expired.loads != 1 {
		return errors.New("the database should have been asked once each time")
	}
	return nil
}
