package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// limit is how long a test may take, building not counted.
const limit = 2 * time.Minute

// A gate runs mutants.
type gate struct {
	root   string       // of the module
	jobs   int          // at a time
	report func(result) // is called for each mutant that is done, several at a time

	// goTest runs go test and returns its output. Failing tests are no error.
	goTest func(ctx context.Context, args ...string) (said string, err error)
}

// A result is what became of one mutant.
type result struct {
	mutant *mutant
	why    string // it was not killed; empty if it was
	said   string // by the killer
	took   time.Duration
}

// run tries all mutants. An error means that the results are worth nothing.
func (g *gate) run(ctx context.Context, mutants []mutant) error {
	changed := make([]map[string]string, len(mutants))
	var errs []error
	for i := range mutants {
		var err error
		changed[i], err = mutants[i].apply(os.DirFS(g.root))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := g.control(ctx, mutants); err != nil {
		return err
	}
	return each(g.jobs, len(mutants), func(i int) error {
		r, err := g.try(ctx, &mutants[i], changed[i])
		if err == nil {
			g.report(r)
		}
		return err
	})
}

// control runs the killers on the code as it is: those that share a package
// and flags in one go, which saves a link for each.
func (g *gate) control(ctx context.Context, mutants []mutant) error {
	type command struct {
		pkg          string
		tests, flags []string
	}
	var commands []command
	for _, m := range mutants {
		i := slices.IndexFunc(commands, func(c command) bool { return c.pkg == m.pkg && slices.Equal(c.flags, m.flags) })
		switch {
		case i < 0:
			commands = append(commands, command{m.pkg, []string{m.test}, m.flags})
		case !slices.Contains(commands[i].tests, m.test):
			commands[i].tests = append(commands[i].tests, m.test)
		}
	}
	return each(g.jobs, len(commands), func(i int) error {
		c := commands[i]
		out, err := g.goTest(ctx, g.args(c.pkg, c.tests, c.flags)...)
		if err != nil {
			return err
		}
		if problem := controlled(c.tests, out); problem != "" {
			return fmt.Errorf("without any mutant, in %s: %s", c.pkg, shorten(problem))
		}
		return nil
	})
}

// try runs one mutant's killer on the changed files.
func (g *gate) try(ctx context.Context, m *mutant, changed map[string]string) (result, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	overlay, err := g.overlay(dir, changed)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	out, err := g.goTest(ctx, g.args(m.pkg, []string{m.test}, m.flags, "-overlay="+overlay)...)
	if err != nil {
		return result{}, err
	}
	return result{m, judge(m, out), out, time.Since(began)}, nil
}

// args are those of go test for some tests of a package, with others in front.
func (g *gate) args(pkg string, tests, flags []string, front ...string) []string {
	module := g.module(pkg)
	if module != "." {
		front = append([]string{"-C", filepath.Join(g.root, module)}, front...) // which must be the first
	}
	args := append(front,
		"-v", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout="+limit.String(), "-p=1",
		"-run="+pattern(tests),
		"./"+cmp.Or(strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/"), "."),
	)
	return append(args, flags...)
}

// module returns the folder of the module that a package is in: "." unless that has a go.mod of its
// own, as those below contrib do.
func (g *gate) module(pkg string) string {
	for dir := path.Clean(pkg); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(g.root, dir, "go.mod")); err == nil {
			return dir
		}
	}
	return "."
}

// pattern matches these tests, or subtests, and no others.
func pattern(tests []string) string {
	var all []string
	for _, test := range tests {
		levels := strings.Split(test, "/")
		for i, l := range levels {
			levels[i] = "^" + regexp.QuoteMeta(l) + "$"
		}
		all = append(all, strings.Join(levels, "/"))
	}
	return strings.Join(all, "|")
}

// overlay writes the changed files to dir, and returns the path of the file
// that has the go command read them in place of the real ones.
func (g *gate) overlay(dir string, changed map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range changed {
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(g.root, filepath.FromSlash(file))] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// each calls f for the numbers below n, some at a time, and none after an
// error.
func each(jobs, n int, f func(i int) error) error {
	var all sync.WaitGroup
	var failed atomic.Bool
	errs, slots := make([]error, n), make(chan struct{}, jobs)
	for i := range n {
		slots <- struct{}{}
		if failed.Load() {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(i)
			failed.CompareAndSwap(false, errs[i] != nil)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
