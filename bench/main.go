// Command bench shows what a quorum lock costs and how it behaves when nodes fail, side by side
// with other libraries on the same servers in the same run.
//
//	go -C bench run .                                     on nodes in this process: to try it, says nothing of speed
//	go -C bench run . --nodes process                     on five redis-server processes
//	go -C bench run . --nodes process --scenario pause --html pause.html
//	go -C bench run . --nodes redis://a:6379,redis://b:6379,redis://c:6379
//	go -C bench run . --document ../docs/BENCHMARKS.md    all that this document says
//	go -C bench run . --list                              the scenarios, and the libraries
//
// A scenario is a file of flags, which flags on the command line override. Machines differ and are
// shared, so that only ratios within one run mean something.
//
// Data flow: options.go makes a plan of the flags, bench.go runs its trials one after the other and
// fills a record.Run, output.go shows it. document.go does so for each command of a Markdown file.
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
	met, err := o.run(ctx, stdout, stderr)
	for _, m := range met {
		fmt.Fprintf(stderr, "bench: %s\n", m)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	if len(met) > 0 {
		return exitCondition
	}
	return 0
}

// run measures and shows, and returns the conditions that were met.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) (met []string, err error) {
	if o.document != "" {
		d, err := openDocument(o.document)
		if err != nil {
			return nil, err
		}
		return d.measure(ctx, stdout, stderr)
	}
	result, err := o.measure(ctx, stderr)
	if err != nil {
		return nil, err
	}
	if err := o.show(stdout, result); err != nil {
		return nil, err
	}
	return append(doubleHolders(result), o.failIf.met(result)...), nil
}
