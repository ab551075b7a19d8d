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

	"github.com/redquorum/redquorum/bench/internal/load"
)

// Exit codes.
const (
	exitFailed    = 1  // the benchmark could not be run to its end
	exitCondition = 2  // a --fail-if was met, or a lock of redquorum had two holders
	exitUsage     = 64 // EX_USAGE of sysexits.h
)

func main() {
	if load.IsClient() {
		os.Exit(load.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitUsage
	case o.list:
		list(stdout)
		return 0
	}
	result, err := o.measure(ctx, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	if err := o.show(stdout, result); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	met := append(doubleHolders(result), o.failIf.met(result)...)
	for _, m := range met {
		fmt.Fprintf(stderr, "bench: %s\n", m)
	}
	if len(met) > 0 {
		return exitCondition
	}
	return 0
}
