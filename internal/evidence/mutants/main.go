// Command mutants is the mutation gate: it breaks one guard of the library at a time, and checks that
// a named test fails. A safety test that no fault can fail is not a test.
//
//	go run ./internal/evidence/mutants                    # all of them, as make mutants does
//	go run ./internal/evidence/mutants -v 'quorum-*'      # some, with the failures
//
// The exit code is 1 if a mutant survived, or did not reach its test.
//
// # A mutant
//
// A mutant is a file of the folder list, which is read as a diff without line numbers:
//
//	guard: a quorum is more than half of the nodes
//	without: two halves of four nodes lock for two clients
//	killed by: . TestQuorumSchedules -schedules=2000
//	says: P1:
//
//	--- redlock/internal/quorum Tally.Quorum
//	@@
//	-func (t Tally) Quorum() int { return t.Nodes/2 + 1 }
//	+func (t Tally) Quorum() int { return (t.Nodes + 1) / 2 }
//
// killed by names a package's folder, its test, and the test's own flags. says, if given, is a text
// that the failure must contain: a test that guards several promises must fail for the right one.
// For a mutant that makes its test hang, says names the panic that ends the test.
//
// A hunk is addressed by a package's folder and a declaration in it: newValue, Tally.Quorum or
// (*Lock).end, as in a stack trace, or the name of a variable or a constant with a declaration of
// its own. Its file does not matter, so a function can be moved. A Lua script is addressed by its
// path. The lines of a hunk that begin with - or a space must occur exactly once, with any
// indentation.
//
// go test finds a mutant that no longer applies or does not compile, without running it: a rewritten
// guard needs a rewritten mutant. There is one mutant for each guard. Variants of a fault belong in
// the tests.
//
// # What counts
//
// First the tests must pass without a mutant. Then a mutant is killed if its named test ran and
// failed by itself. The failure of another test, a panic or the time limit does not count.
//
// # How it is fast
//
// Linking a test takes longer than most tests, so mutants of functions are woven into one copy of
// the code, and an environment variable selects the mutant of a run (see weave). Mutants of scripts,
// variables and signatures are built one by one. The gate does not write to the tree: the changed
// files are in a temporary folder, and the compiler gets them by go test -overlay.
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

//go:embed list
var files embed.FS

func list() fs.FS {
	folder, _ := fs.Sub(files, "list") // it is embedded
	return folder
}

func main() {
	verbose := flag.Bool("v", false, "print the failures of mutants that were killed, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *verbose, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}

// run tests the mutants with matching names, in the module of the current folder.
func run(ctx context.Context, out io.Writer, verbose bool, patterns []string) (err error) {
	mutants, err := load(list(), patterns...)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var mu sync.Mutex // guards the counts, and out
	began, done := time.Now(), 0
	var left []string
	err = gate{root, temp}.run(ctx, mutants, func(r result) {
		mu.Lock()
		defer mu.Unlock()
		done++
		verdict, text := "killed", ""
		if r.why != "" {
			left = append(left, r.name)
			verdict, text = "NOT KILLED", fmt.Sprintf("%s\n    without it: %s\n", shorten(r.why), r.without)
		} else if verbose {
			text = shorten(r.said) + "\n"
		}
		fmt.Fprintf(out, "%3d/%d  %5.1fs  %-10s  %s: %s\n%s", done, len(mutants), r.took.Seconds(), verdict, r.name, r.guard, text)
	})
	if err == nil && left != nil {
		err = fmt.Errorf("not killed: %s: a test is missing, or has become blind, or the guard is not needed", strings.Join(left, ", "))
	}
	fmt.Fprintf(out, "%d mutants in %v, %d not killed\n", done, time.Since(began).Round(time.Second), len(left))
	return err
}
