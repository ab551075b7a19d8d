package servers

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

// limit is for a story that hangs, not for one that takes its time.
const limit = time.Minute

// A Story shows one thing, and returns an error if it did not happen.
type Story func(ctx context.Context, out io.Writer, urls []string) error

// Main tells a story on the servers that flag -nodes names, or on five servers
// in this process, and exits with 1 if it has failed.
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
