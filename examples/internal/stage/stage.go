// Package stage gives the examples servers, and machines that can be cut off from them, so that they
// need nothing but Go. It is no part of what they show: a program of your own hands the URLs of its
// servers to pool.Open.
package stage

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
)

// limit is for a story that hangs, not for one that takes its time.
const limit = time.Minute

// A Story shows one thing, and returns an error if it did not happen.
type Story func(ctx context.Context, out io.Writer, urls []string) error

// Main runs a story on the servers that flag -nodes names, or on five servers in this process, and
// exits with 1 if it has failed.
func Main(story Story) {
	nodes := flag.String("nodes", "", "redis:// URLs with commas between them; empty: five servers in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *nodes, story); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, nodes string, story Story) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	urls, stop, err := start(ctx, nodes)
	if err != nil {
		return err
	}
	defer stop()
	return story(ctx, out, urls)
}

// start returns the URLs that nodes lists, or those of five new servers, which stop ends.
func start(ctx context.Context, nodes string) (urls []string, stop func(), err error) {
	kind, opts := fleet.Embedded, fleet.Options{}
	if nodes != "" {
		kind, opts.URLs = fleet.Addrs, strings.Split(nodes, ",")
	}
	f, err := fleet.Start(ctx, kind, opts)
	if err != nil {
		return nil, nil, err
	}
	return f.URLs(), func() { f.Close() }, nil
}
