package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/fleet"
)

func newNodes() *cobra.Command {
	var kind string
	var n, port int
	var asJSON bool
	c := &cobra.Command{
		Use:   "nodes",
		Short: "Start servers to try the other commands on, until interrupted",
		Long: `Starts servers on ports of this machine, prints the settings for other terminals, and ends them
with all their data when it is interrupted.

It reads commands that break the servers, one on each line:
` + playgroundHelp + `
Kinds:
  embedded  inside this process, needs nothing; their speed means nothing
  process   redis-server or valkey-server, which must be installed

Exit codes:
  0    interrupted, and all servers have ended
  1    a server could not be started (a port is taken?)
  64   the command line is wrong`,
		Example: `  redlock nodes
  redlock nodes --kind process -n 3 --port 7101`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if !startable(fleet.Kind(kind)) {
				return usageErrorf("--kind: %q must be %s or %s", kind, fleet.Embedded, fleet.Process)
			}
			ports, err := choosePorts(n, port)
			if err == nil {
				err = portsFree(ports)
			}
			if err != nil {
				return err
			}
			p := &playground{out: c.OutOrStdout(), pids: make([]int, n)}
			if asJSON {
				p.out = c.ErrOrStderr()
			}
			opts := fleet.Options{
				Nodes: n, Ports: ports,
				Started: p.started,
				Ended:   func(i int) { p.print("%d: its process has ended\n", i+1) },
			}
			if _, err := fleet.Faketime(); err == nil && fleet.Kind(kind) == fleet.Process {
				dir, err := os.MkdirTemp("", "redlock-clocks")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				if opts.Clocks, err = newClocks(dir, n); err != nil {
					return err
				}
				p.clocks = opts.Clocks
			}
			f, err := fleet.Start(c.Context(), fleet.Kind(kind), opts)
			if err != nil {
				return err
			}
			p.begin(f)
			servers := struct {
				Kind string   `json:"kind"`
				URLs []string `json:"urls"`
			}{kind, f.URLs()}
			if err = plain.OutputEither(c.OutOrStdout(), asJSON, servers, invitation(fleet.Kind(kind), f.URLs(), p.pids)); err == nil {
				ignoreTerminal()
				go p.read(c.Context(), c.InOrStdin()) // ends with the process, because nothing else ends a read
				<-c.Context().Done()
			}
			return errors.Join(err, f.Close())
		},
	}
	f := c.Flags()
	f.StringVar(&kind, "kind", string(fleet.Embedded), "`KIND` of servers: embedded or process")
	c.RegisterFlagCompletionFunc("kind", kindsToStart)
	f.IntVarP(&n, "number", "n", 5, "how many")
	f.IntVar(&port, "port", 7001, "the first `PORT`; the others follow it")
	f.BoolVar(&asJSON, "json", false, "print one JSON document instead of the text")
	return c
}

func choosePorts(n, first int) ([]int, error) {
	const lastPort = 65535
	if n < 1 || n > 99 {
		return nil, usageErrorf("-n %d: must be between 1 and 99", n)
	}
	if first < 1 || first+n-1 > lastPort {
		return nil, usageErrorf("--port %d: must leave room for %d ports between 1 and %d", first, n, lastPort)
	}
	ports := make([]int, n)
	for i := range ports {
		ports[i] = first + i
	}
	return ports, nil
}

// startable reports whether the command can start nodes of a kind. It cannot start containers,
// because they need a Docker client; docker-compose.yml starts five.
func startable(kind fleet.Kind) bool { return kind == fleet.Embedded || kind == fleet.Process }

// portsFree returns an error if a port is taken. The command calls it before it starts a server,
// because the servers' own errors are long.
func portsFree(ports []int) error {
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			if op, is := errors.AsType[*net.OpError](err); is {
				err = op.Err
			}
			return fmt.Errorf("port %d of 127.0.0.1 is not free (%v): end the program that uses it, or pass another --port", port, err)
		}
		l.Close()
	}
	return nil
}

func invitation(kind fleet.Kind, urls []string, pids []int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d servers (%s) are running. In other terminals:\n\n", len(urls), kind)
	fmt.Fprintf(&b, "  export REDLOCK_NODES=%s\n\n", strings.Join(urls, ","))
	b.WriteString(`  redlock run nightly -- sleep 60
  redlock status --watch
  redlock doctor

The servers are new and may have forgotten locks, so they have no vote until one
TTL (10s by default) after the first client connected.
`)
	if kind == fleet.Process {
		fmt.Fprintf(&b, "Their processes are %s.\n", strings.Trim(fmt.Sprint(pids), "[]"))
	} else {
		b.WriteString("They run inside this process. Their speed means nothing. They send no hints, so the other\ncommands print warnings. Servers of --kind process do send hints.\n")
	}
	b.WriteString("Commands here break them: kill 2, restart 2, lose 2, hang 2, wake 2, help.\nInterrupt this (Ctrl-C, or SIGTERM from a script) to end them, with all that is on them.\n")
	return b.String()
}
