// Command bench shows what a quorum lock costs and how it behaves when nodes fail, side by side
// with other libraries on the same servers in the same run.
//
//	go -C bench run .                                     on nodes in this process: to try it, says nothing of speed
//	go -C bench run . --nodes process                     on five redis-server processes
//	go -C bench run . --nodes process --scenario pause --svg pictures
//	go -C bench run . --nodes redis://a:6379,redis://b:6379,redis://c:6379
//	go -C bench run . --document ../docs/BENCHMARKS.md    all that this document says
//	go -C bench run . --list                              the scenarios, and the libraries
//
// A scenario is a file of flags, which flags on the command line override. Machines differ and are
// shared, so that only ratios within one run mean something.
//
// Data flow: options.go makes a plan of the flags, bench.go runs its trials one after the other and
// fills a record.Run, package report shows it. document.go does so for each command of a Markdown file.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/redquorum/redquorum/bench/internal/load"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/report"
)

// Exit codes.
const (
	exitFailed  = 1  // the benchmark could not be run to its end
	exitHolders = 2  // a lock of redquorum had two holders
	exitUsage   = 64 // EX_USAGE of sysexits.h
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
	found, err := o.run(ctx, stdout, stderr)
	for _, f := range found {
		fmt.Fprintf(stderr, "bench: %s\n", f)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	if len(found) > 0 {
		return exitHolders
	}
	return 0
}

// run measures and shows, and returns redquorum's locks that had two holders.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) (found []string, err error) {
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
	return doubleHolders(result), o.show(stdout, result)
}

// show prints the summary, and writes the files that were asked for. One that cannot be written
// costs neither the summary nor the others: the run took its time.
func (o *options) show(stdout io.Writer, run record.Run) error {
	errs := []error{report.Text(stdout, run)}
	if o.json != "" {
		text, err := json.MarshalIndent(run, "", "  ")
		errs = append(errs, err, os.WriteFile(o.json, text, 0o644))
	}
	if o.svg != "" {
		errs = append(errs, os.MkdirAll(o.svg, 0o755))
		for _, p := range report.SVGs(run) {
			errs = append(errs, os.WriteFile(filepath.Join(o.svg, p.Name), p.SVG, 0o644))
		}
	}
	return errors.Join(errs...)
}

// doubleHolders names redquorum's locks that had two holders at once. That must never happen, under
// any load.
func doubleHolders(run record.Run) (found []string) {
	for _, t := range run.Trials {
		if t.Violations > 0 && strings.HasPrefix(t.Subject, "redquorum") && t.Subject != "redquorum-noguard" {
			found = append(found, fmt.Sprintf("%s: %d pairs of holders of one lock at one time, of %d checked: %s", t.Subject, t.Violations, t.Checked, t.Violation))
		}
	}
	return found
}
