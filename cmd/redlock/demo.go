package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/fleet"
)

// demoLimit bounds the whole demo: far more than its 10 seconds, for machines
// that must fetch an image first.
const demoLimit = 3 * time.Minute

func newDemo() *cobra.Command {
	var nodes string
	var asJSON bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "See a lock taken, refused, lost and regained on five servers",
		Long: `Starts five Redis servers, takes a quorum lock on them, breaks them, loses the
lock, mends them, and takes it again. It exits with 0 only if everything that
it shows did happen. With --nodes and URLs it uses servers that run already,
and leaves out what would break them.`,
		Example: `  redlock demo
  redlock demo --nodes process      # redis-server processes
  redlock demo --nodes docker --json`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return demo(c.Context(), nodes, newNarrator(c.OutOrStdout(), asJSON))
		},
	}
	c.Flags().StringVar(&nodes, "nodes", "embedded", "embedded, process (redis-server), docker, or redis:// `URLS` with commas between them")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, for machines")
	return c
}

// demo plays the scenes on servers that it starts.
func demo(ctx context.Context, nodes string, n *narrator) error {
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	f, err := startNodes(ctx, nodes)
	if err != nil {
		return err
	}
	defer f.Close()
	err = play(ctx, f, n)
	n.end(err)
	return errors.Join(err, n.err)
}

// startNodes makes the fleet that --nodes asks for.
func startNodes(ctx context.Context, nodes string) (fleet.Fleet, error) {
	if strings.Contains(nodes, "://") {
		return fleet.Start(ctx, fleet.Addrs, fleet.Options{URLs: strings.Split(nodes, ",")})
	}
	return fleet.Start(ctx, fleet.Kind(nodes), fleet.Options{Nodes: 5})
}
