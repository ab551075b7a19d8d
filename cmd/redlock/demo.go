package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/demo"
	"github.com/redquorum/redquorum/internal/fleet"
)

// demoLimit bounds the whole demo. It takes some 10 seconds.
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
  redlock demo --nodes redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003 --json`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return playDemo(c.Context(), nodes, demo.NewNarrator(c.OutOrStdout(), asJSON))
		},
	}
	c.Flags().StringVar(&nodes, "nodes", "embedded", "embedded, process (redis-server), or redis:// `URLS` with commas between them")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, for machines")
	return c
}

// playDemo starts the nodes and plays the scenes on them.
func playDemo(ctx context.Context, nodes string, n *demo.Narrator) error {
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	f, err := startNodes(ctx, nodes)
	if err != nil {
		return err
	}
	defer f.Close()
	return demo.Run(ctx, f, n)
}

// startNodes makes the fleet that --nodes asks for.
func startNodes(ctx context.Context, nodes string) (fleet.Fleet, error) {
	if strings.Contains(nodes, "://") {
		return fleet.Start(ctx, fleet.Addrs, fleet.Options{URLs: strings.Split(nodes, ",")})
	}
	kind := fleet.Kind(nodes)
	if !startable(kind) {
		return nil, fmt.Errorf("unknown kind %q; there are %s and %s, and redis:// URLs", kind, fleet.Embedded, fleet.Process)
	}
	return fleet.Start(ctx, kind, fleet.Options{Nodes: 5})
}
