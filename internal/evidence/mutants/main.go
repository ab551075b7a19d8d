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
		fmt.Fprintln(stderr, "Usage: go run ./internal/evidence/mutants [flags] [name or pattern...]")
		flags.PrintDefaults()
	}
	verbose := flags.Bool("v", false, "print what the tests said")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}

	mutants, err := chosen(flags.Args())
	if err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return exitUsage
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return exitFailed
	}
	began, p := time.Now(), progress{w: stdout, verbose: *verbose, total: len(mutants)}
	if err := (&gate{root, 2 * runtime.NumCPU(), p.report, do}).run(ctx, mutants); err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%d mutants in %v\n", len(mutants), time.Since(began).Round(time.Second))
	return p.exitCode()
}

// A progress prints results. It is safe for concurrent use.
type progress struct {
	w       io.Writer
	verbose bool // prints also what the tests say of mutants that they kill
	total   int

	mu         sync.Mutex // guards the fields below, and w
	done, left int
}

func (p *progress) report(r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	verdict, text := "killed", ""
	switch {
	case r.why != "":
		p.left++
		verdict = "NOT KILLED"
		text = fmt.Sprintf("%s\n    without it: %s\n", shorten(r.why), r.mutant.without)
	case p.verbose:
		text = shorten(r.said) + "\n"
	}
	fmt.Fprintf(p.w, "%3d/%d  %5.1fs  %-10s  %s: %s\n%s", p.done, p.total, r.took.Seconds(), verdict, r.mutant.name, r.mutant.guard, text)
}

func (p *progress) exitCode() int {
	if p.left == 0 {
		return 0
	}
	fmt.Fprintf(p.w, "%d of %d were not killed: a test is missing, or has become blind, or the guard is not needed\n", p.left, p.done)
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
	for _, p := range patterns {
		before := len(some)
		for _, m := range all {
			if ok, _ := path.Match(p, m.name); ok {
				some = append(some, m)
			}
		}
		if len(some) == before {
			return nil, fmt.Errorf("no mutant is called %s", p)
		}
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

// do runs a command, tests that take long included.
func do(ctx context.Context, dir, mutant string, command ...string) (string, error) {
	// Not bound to ctx: killed, a test would leave its servers and files behind. A terminal's interrupt
	// reaches them anyway.
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), long.Env+"=1", variable+"="+mutant)
	cmd.WaitDelay = time.Second // for what a failed test has left running, which has its output, too
	out, err := cmd.CombinedOutput()
	var exited *exec.ExitError
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if errors.As(err, &exited) || errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it failed, and its output says how
	}
	return string(out), err
}
