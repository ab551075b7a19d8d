// Command chaos takes locks on real redis-server processes while these, the clients and the network
// are broken, and judges the history of it.
//
//	go -C chaos run . --duration 15m                        # all but clock-at-boot, about a minute each
//	go -C chaos run . --scenario pause-clients,mixed --seed 42  # the same faults again
//	go -C chaos run . --scenario flush --client redsync  # another library
//	go -C chaos run . --scenario restart-majority --no-guard
//
// The last one is the control: without the memory guard three forgetful servers give away what
// another client holds, and the checks must find that.
//
// Five servers are started (package internal/fleet), several client processes, each of them this
// program run again (internal/client), and a register that they write to under their fenced locks, by
// a fence.Gate. In the scenario serve every second client has its locks of processes of "redlock
// serve", each behind a relay, and in stop-anywhere of "redlock run". Clients ask for locks of every
// kind, on the same names. The nemesis carries out a plan that the seed decides (internal/nemesis). The
// history of all of them, which is kept in a file if anything is wrong, is judged at the end, or when
// the run is interrupted (internal/judge says by which rules).
//
// The exit code is 1 if a rule was violated, and 2 if the run could not be made.
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

// runAll runs one scenario after the other.
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
