// Command chaos takes locks on real redis-server processes, breaks servers, clients and the network in
// the meantime, and judges the history.
//
//	go -C chaos run . --duration 15m                        # all but clock-at-boot, about a minute each
//	go -C chaos run . --scenario pause-clients,mixed --seed 42  # the same faults again
//	go -C chaos run . --scenario flush --client redsync  # another library
//	go -C chaos run . --scenario restart-majority --no-guard
//
// The last run is the control: without the memory guard three forgetful servers grant a held lock
// again, and the checks must find that.
//
// A run starts five servers (package internal/fleet), several client processes of this same program
// (internal/client), and a register, which checks the tokens of writes with a fence.Gate. In the
// scenario serve every second client takes its locks from processes of "redlock serve", each behind
// a relay, and in stop-anywhere from "redlock run". Clients request locks of every kind, on the
// same names. The nemesis carries out a plan that the seed determines (internal/nemesis). At the
// end, or after an interrupt, internal/judge judges the history of all processes. After a violation
// a file keeps the history.
//
// The exit code is 1 if a rule was violated, and 2 if the run failed.
//
// It needs a Unix, and redis-server or valkey-server on the PATH. The scenario clock-at-boot needs
// libfaketime, too, and is not one of "all".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx))
}

// Exit codes.
const (
	violated = 1
	unable   = 2
)

func run(ctx context.Context) (code int) {
	is, err := client.Main()
	if !is {
		code, err = runAll(ctx, os.Args[1:], os.Stdout)
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return unable
	}
	return code
}

// runAll runs the scenarios in sequence.
func runAll(ctx context.Context, args []string, out io.Writer) (code int, err error) {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return 0, err
	}
	if o.judge != "" {
		v, err := readVerdict(o.judge, nil)
		if err != nil {
			return 0, err
		}
		return o.tell(out, o.judge, 0, v), nil
	}
	if !o.table {
		fmt.Fprintf(out, "seed %d, %v of faults in each scenario\n", o.seed, o.duration)
	}
	for _, s := range o.scenarios {
		t := trial{Scenario: s, options: o}
		began := time.Now()
		v, file, err := t.run(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Name, err)
		}
		if o.tell(out, s.Name, time.Since(began), v) == violated {
			code = violated
			if !t.table {
				fmt.Fprintf(out, "  history   %s\n  replay    %s\n", file, t.replay())
			}
		}
		if ctx.Err() != nil {
			fmt.Fprintln(out, "interrupted")
			break
		}
	}
	return code, nil
}
