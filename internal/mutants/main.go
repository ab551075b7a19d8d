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
	asMarkdown := flags.Bool("markdown", false, "print the table of docs/SAFETY.md")
	verbose := flags.Bool("v", false, "print what the tests said")
	part := flags.String("part", "1/1", "`I/N`: try every Nth mutant, from the Ith on")
	jobs := flags.Int("jobs", runtime.NumCPU(), "how many mutants to try at a time")
	limit := flags.Duration("limit", 2*time.Minute, "how long a test may take, building not counted")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || *jobs < 1 || *limit <= 0:
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
	began, done, mu := time.Now(), 0, sync.Mutex{}
	g := gate{root: root, jobs: *jobs, limit: *limit, goTest: goTest(root), report: func(r result) {
		mu.Lock()
		defer mu.Unlock()
		done++
		fmt.Fprintf(stderr, "%3d/%d  %-8s  %s\n", done, len(mutants), r.verdict, r.mutant.name)
		if *verbose && r.verdict == killed { // of the others more is said at the end
			fmt.Fprintln(stderr, shorten(r.said))
		}
	}}
	results, err := g.run(ctx, mutants)
	if err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return exitFailed
	}
	show := table
	if *asMarkdown {
		show = markdown
	}
	code := conclude(stdout, stderr, results, show)
	fmt.Fprintf(stderr, "%d mutants in %v\n", len(results), time.Since(began).Round(time.Second))
	return code
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
