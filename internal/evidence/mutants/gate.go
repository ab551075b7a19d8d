package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// limit is how long a test may take.
const limit = 2 * time.Minute

// A gate runs mutants.
type gate struct {
	root   string       // of the module
	jobs   int          // at a time
	report func(result) // is called for each mutant that is done, several at a time

	// do runs a command in a folder, for a woven mutant or none, and returns its output. That it fails is
	// no error.
	do func(ctx context.Context, dir, mutant string, command ...string) (said string, err error)
}

// A result is what became of one mutant.
type result struct {
	mutant *mutant
	why    string // it was not killed; empty if it was
	said   string // by the killer
	took   time.Duration
}

// A binary is a package's tests, linked with the code in a file for go test -overlay.
type binary struct{ pkg, overlay, path string }

// run tries all mutants. An error means that the results are worth nothing.
func (g *gate) run(ctx context.Context, mutants []mutant) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, apart, err := weave(os.DirFS(g.root), mutants)
	if err != nil {
		return err
	}
	overlay, err := g.overlay(filepath.Join(dir, "woven"), files)
	if err != nil {
		return err
	}
	var binaries []*binary
	woven, of := map[string]*binary{}, make([]*binary, len(mutants))
	add := func(pkg, overlay string) *binary {
		b := &binary{pkg, overlay, filepath.Join(dir, fmt.Sprint(len(binaries), ".test"))}
		binaries = append(binaries, b)
		return b
	}
	for i, m := range mutants {
		if woven[m.pkg] == nil {
			woven[m.pkg] = add(m.pkg, overlay)
		}
		of[i] = woven[m.pkg]
		if apart[i] != nil {
			overlay, err := g.overlay(filepath.Join(dir, m.name), apart[i])
			if err != nil {
				return err
			}
			of[i] = add(m.pkg, overlay)
		}
	}
	if err := each(g.jobs, len(binaries), func(i int) error { return g.build(ctx, binaries[i]) }); err != nil {
		return err
	}
	if err := g.control(ctx, mutants, woven); err != nil {
		return err
	}
	return each(g.jobs, len(mutants), func(i int) error {
		m, began := &mutants[i], time.Now()
		out, err := g.test(ctx, of[i], m.name, []string{m.test}, m.flags)
		if err == nil {
			g.report(result{m, judge(m, out), out, time.Since(began)})
		}
		return err
	})
}

// build links a binary.
func (g *gate) build(ctx context.Context, b *binary) error {
	said, err := g.do(ctx, g.root, "", "go", "test", "-c", "-o", b.path, "-overlay="+b.overlay, "-vet=off", "-ldflags=-s -w", "./"+b.pkg)
	if _, missing := os.Stat(b.path); err == nil && missing != nil {
		err = fmt.Errorf("the tests of %s with mutants do not build:\n%s", b.pkg, said)
	}
	return err
}

// control runs the killers without a mutant: those that share a package and flags in one go.
func (g *gate) control(ctx context.Context, mutants []mutant, woven map[string]*binary) error {
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
		out, err := g.test(ctx, woven[c.pkg], "", c.tests, c.flags)
		if err != nil {
			return err
		}
		if problem := controlled(c.tests, out); problem != "" {
			return fmt.Errorf("without any mutant, in %s: %s", c.pkg, shorten(problem))
		}
		return nil
	})
}

// test runs some tests of a binary, with the mutant of that name if it is woven.
func (g *gate) test(ctx context.Context, b *binary, name string, tests, flags []string) (string, error) {
	args := append([]string{b.path, "-test.v", "-test.timeout=" + limit.String(), "-test.run=" + pattern(tests)}, flags...)
	return g.do(ctx, filepath.Join(g.root, b.pkg), name, args...)
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

// overlay writes the changed files to dir, a new one, and returns the path of the file
// that has the go command read them in place of the real ones.
func (g *gate) overlay(dir string, changed map[string]string) (string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
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
