package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
	"github.com/redquorum/redquorum/internal/fleet"
)

// demoLimit bounds the whole demo. It takes about 10 seconds.
const demoLimit = 3 * time.Minute

func newDemo() *cobra.Command {
	s := &servers{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "See a lock taken, refused, lost and regained on five servers",
		Long: `Starts five Redis servers, takes a quorum lock on them, breaks them, loses the lock, repairs
them, and takes it again. It exits with 0 only if everything that it shows did happen.

The servers are inside this process, or with "--node process" processes of redis-server. With
URLs in --node it uses those servers, and skips the scenes that would break them; it exits with 69
if one does not answer.`,
		Example: `  redlock demo
  redlock demo --node process       # redis-server processes
  redlock demo --node redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			s.stderr = c.ErrOrStderr()
			if s.flags.Changed("node") { // otherwise the demo leaves the environment's servers alone
				if err := s.configure(); err != nil {
					return err
				}
			}
			ctx, cancel := context.WithTimeout(c.Context(), demoLimit)
			defer cancel()
			f, err := s.demoFleet(ctx)
			if err != nil {
				return err
			}
			defer f.Close()
			return demo.Run(ctx, f, demo.NewNarrator(c.OutOrStdout()))
		},
	}
	s.flags = c.Flags()
	s.targets.addNodes(&s.cli)
	c.RegisterFlagCompletionFunc("node", kindsToStart)
	c.Flags().Lookup("node").Usage = "`URL` of a server, for each, or embedded, or process (redis-server); default: embedded"
	return c
}

// demoFleet starts the servers that --node asks for, or connects to them.
func (s *servers) demoFleet(ctx context.Context) (fleet.Fleet, error) {
	kind, options := fleet.Embedded, fleet.Options{Nodes: 5}
	switch {
	case len(s.targets.nodes) == 1 && !strings.Contains(s.targets.nodes[0], "://"):
		if kind = fleet.Kind(s.targets.nodes[0]); !startable(kind) {
			return nil, usageErrorf("--node: %q must be %s, %s or redis:// URLs", kind, fleet.Embedded, fleet.Process)
		}
	case len(s.targets.nodes) > 0:
		if err := s.targets.checkURLs(); err != nil {
			return nil, err
		}
		urls, err := s.reach.login.in(ctx, s.targets.nodes)
		if err != nil {
			return nil, err
		}
		kind, options = fleet.Addrs, fleet.Options{URLs: urls}
	}
	f, err := fleet.Start(ctx, kind, options)
	if err != nil && kind == fleet.Addrs && ctx.Err() == nil {
		return nil, &exitError{code: exitNoQuorum, err: fmt.Errorf("all servers of --node must answer: %w", errors.Unwrap(err))}
	}
	return f, err
}
