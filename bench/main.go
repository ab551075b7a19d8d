// Command bench compares quorum locks with other libraries on the same servers in the same run: their
// cost, and their behaviour while nodes fail.
//
//	go -C bench run .                                     on nodes in this process, to try it
//	go -C bench run . --nodes process                     on five redis-server processes
//	go -C bench run . --nodes process --scenario pause --svg pictures
//	go -C bench run . --document ../docs/BENCHMARKS.md    all figures of the page
//	go -C bench run . --help                              flags, scenarios and libraries
//
// A scenario is a file of flags. Flags on the command line override it. Machines differ, and other
// programs use them, so only ratios within one run are meaningful.
//
// options.go reads the flags. bench.go runs the trials and fills a record.Run. Package report shows
// the Run. document.go does all this for each command of a page.
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
	exitFailed  = 1  // the benchmark did not complete
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

// run is main without the exit of the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitUsage
	}
	var found []string
	if o.document != "" {
		found, err = measureDocument(ctx, o.document, stdout)
	} else {
		var result record.Run
		if result, err = o.measure(ctx); err == nil {
			found, err = doubleHolders(result), o.show(stdout, result)
		}
	}
	for _, f := range found {
		fmt.Fprintf(stderr, "bench: %s\n", f)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	case len(found) > 0:
		return exitHolders
	}
	return 0
}

// show prints the summary and writes the files that the flags name. If one file cannot be written,
// show still writes the others, because the run took a long time.
func (o *options) show(stdout io.Writer, run record.Run) error {
	errs := []error{report.Text(stdout, run)}
	if o.json != "" {
		text, err := json.MarshalIndent(run, "", "  ")
		errs = append(errs, err, os.WriteFile(o.json, text, 0o644))
	}
	if o.svg != "" {
		errs = append(errs, os.MkdirAll(o.svg, 0o755))
		for name, svg := range report.SVGs(run) {
			errs = append(errs, os.WriteFile(filepath.Join(o.svg, name), svg, 0o644))
		}
	}
	return errors.Join(errs...)
}

// doubleHolders reports locks of redquorum that had two holders at once, which no load may cause.
func doubleHolders(run record.Run) (found []string) {
	for _, t := range run.Trials {
		if t.Violations > 0 && strings.HasPrefix(t.Subject, "redquorum") {
			found = append(found, fmt.Sprintf("%s: %d pairs of holders of one lock at one time, of %d checked: %s", t.Subject, t.Violations, t.Checked, t.Violation))
		}
	}
	return found
}
