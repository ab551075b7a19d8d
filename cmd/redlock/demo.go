package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
)

// demoLimit bounds the whole demo: far more than its 10 seconds, for machines
// that must fetch an image first.
const demoLimit = 3 * time.Minute

const demoHelp = `Usage: redlock demo [flags]

Starts five Redis servers, takes a quorum lock on them, breaks them, loses the
lock, mends them, and takes it again. It exits with 0 only if everything that
it shows did happen. With --nodes and URLs it uses servers that run already,
and leaves out what would break them.

Flags:
`

// demo runs the command "demo".
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), demoHelp)
		flags.PrintDefaults()
	}
	nodes := flags.String("nodes", "embedded", "embedded, process (redis-server), docker, or redis:// URLs with commas between them")
	asJSON := flags.Bool("json", false, "print one JSON object a line, for machines")
	for _, arg := range args { // help that was asked for is no error
		if arg == "-h" || arg == "-help" || arg == "--help" {
			flags.SetOutput(stdout)
		}
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return errUsage // flags has explained it
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "redlock: demo takes no arguments, only flags: %q\n", flags.Args())
		return errUsage
	}

	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	f, err := startNodes(ctx, *nodes)
	if err != nil {
		return err
	}
	defer f.Close()
	n := newNarrator(stdout, *asJSON)
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
