// Package stage provides the servers of the examples, and machines that can be cut off from them,
// so that the examples need only Go. Your own program does not need it, because it passes the URLs
// of its servers to pool.Open.
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

// limit ends a story that hangs. It is far longer than any story takes.
const limit = time.Minute

// A Story demonstrates one use, and returns an error if it failed.
type Story func(ctx context.Context, out io.Writer, urls []string) error

// Main runs a story on the servers named by flag -nodes, or on five servers in this process. It
// exits with 1 if the story fails.
func Main(story Story) {
	nodes := flag.String("nodes", "", "comma-separated redis:// URLs (default: five servers in this process)")
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

// start returns the URLs in nodes, or the URLs of five new servers, which stop closes.
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
