package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/long"
)

//go:embed list
var list embed.FS

const (
	exitFailed = 1
	exitUsage  = 64 // EX_USAGE of sysexits.h
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "Usage: go run ./internal/mutants [flags] [name or pattern...]")
		flags.PrintDefaults()
	}
	verbose := flags.Bool("v", false, "print what the tests said")
	part := flags.String("part", "1/1", "`I/N`: try every Nth mutant, from the Ith on")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}

	mutants, err := chosen(flags.Args())
	if err == nil {
		mutants, err = partOf(mutants, *part)
	}
	if err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return exitUsage
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return exitFailed
	}
	var mu sync.Mutex // guards what report does
	began, done := time.Now(), 0
	report := func(r result) {
		mu.Lock()
		defer mu.Unlock()
		done++
		outcome := "killed"
		if r.survived != "" {
			outcome = "SURVIVED"
		}
		fmt.Fprintf(stdout, "%3d/%d  %-8s  %5.1fs  %s\n", done, len(mutants), outcome, r.took.Seconds(), r.mutant.name)
		if *verbose && r.survived == "" { // of the others more is said at the end
			fmt.Fprintln(stdout, shorten(r.said))
		}
	}
	g := gate{root: root, jobs: runtime.NumCPU(), goTest: goTest(root), report: report}
	results, err := g.run(ctx, mutants)
	if err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return exitFailed
	}
	code := conclude(stdout, results)
	fmt.Fprintf(stdout, "%d mutants in %v\n", len(results), time.Since(began).Round(time.Second))
	return code
}

// conclude explains the results that are not as they must be, and returns the
// exit code.
func conclude(w io.Writer, results []result) int {
	left := 0
	for _, r := range results {
		if r.survived == "" {
			continue
		}
		left++
		fmt.Fprintf(w, "\n%s survived: %s\n", r.mutant.name, shorten(r.survived))
		fmt.Fprintf(w, "    the guard: %s\n    without it: %s\n", r.mutant.guard, r.mutant.without)
	}
	if left == 0 {
		return 0
	}
	fmt.Fprintf(w, "\n%d of %d mutants were not killed: a test is missing, or has become blind, or the guard is not needed\n", left, len(results))
	return exitFailed
}

// chosen returns the mutants whose names match one of the patterns; all if
// there are none.
func chosen(patterns []string) ([]mutant, error) {
	folder, err := fs.Sub(list, "list")
	if err != nil {
		return nil, err
	}
	all, err := load(folder)
	if err != nil || len(patterns) == 0 {
		return all, err
	}
	var some []mutant
	used := make([]bool, len(patterns))
	for _, m := range all {
		fits := false
		for i, p := range patterns {
			ok, err := path.Match(p, m.name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", p, err)
			}
			fits, used[i] = fits || ok, used[i] || ok
		}
		if fits {
			some = append(some, m)
		}
	}
	for i, p := range patterns {
		if !used[i] {
			return nil, fmt.Errorf("no mutant is called %s", p)
		}
	}
	return some, nil
}

// partOf returns every nth of all, from the ith on, for the text "i/n".
func partOf(all []mutant, text string) (some []mutant, err error) {
	var first, each int
	if _, err := fmt.Sscanf(text, "%d/%d", &first, &each); err != nil || each < 1 || first < 1 || first > each {
		return nil, fmt.Errorf("-part %s: must be like 1/3, the first of three parts", text)
	}
	for i := first - 1; i < len(all); i += each {
		some = append(some, all[i])
	}
	return some, nil
}

// moduleRoot returns the folder of the module that it runs in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	mod := string(bytes.TrimSpace(out))
	if err != nil || filepath.Base(mod) != "go.mod" {
		return "", errors.New("run it within the module")
	}
	return filepath.Dir(mod), nil
}

// goTest returns a function that runs go test in dir, also of tests that take long.
func goTest(dir string) func(context.Context, ...string) ([]byte, error) {
	return func(ctx context.Context, args ...string) ([]byte, error) {
		// Not bound to ctx: killed, the go command would leave the test running
		// and its files behind. A terminal's interrupt reaches them anyway.
		cmd := exec.Command("go", append([]string{"test"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), long.Env+"=1")
		out, err := cmd.CombinedOutput()
		var exited *exec.ExitError
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.As(err, &exited) {
			err = nil // it failed, and its output says how
		}
		return out, err
	}
}
