package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/testenv"
)

// A gate tests the mutants of the module in root.
type gate struct {
	root string
	temp string // folder for changed files and linked tests
}

// A result is the outcome of testing a mutant.
type result struct {
	mutant
	why  string // it survived; "" if it was killed
	said string // by the test
	took time.Duration
}

// run tests all mutants and reports each. After an error, the results are worthless.
func (g gate) run(ctx context.Context, mutants []mutant, report func(result)) error {
	woven, apart, err := weave(source{os.DirFS(g.root), map[string][]*place{}}, mutants)
	if err != nil {
		return err
	}
	overlay, err := g.overlay("woven", woven)
	if err != nil {
		return err
	}
	type build struct{ binary, pkg, overlay string }
	var builds []build
	var controls []mutant
	seen := map[string]bool{}
	isFirst := func(key string) bool { is := !seen[key]; seen[key] = true; return is }
	for _, m := range mutants {
		if isFirst(m.pkg) {
			builds = append(builds, build{g.binary(m.pkg), m.pkg, overlay})
		}
		if apart[m.name] != nil {
			overlay, err := g.overlay(m.name, apart[m.name])
			if err != nil {
				return err
			}
			builds = append(builds, build{g.binary(m.name), m.pkg, overlay})
		}
		if isFirst(fmt.Sprint(m.pkg, m.test, m.flags)) {
			controls = append(controls, m)
		}
	}
	if err := each(ctx, builds, func(b build) error {
		said, err := do(g.root, "", "go", "test", "-c", "-o", b.binary, "-overlay="+b.overlay, "-vet=off", "-ldflags=-s -w", "./"+b.pkg)
		if err != nil {
			err = fmt.Errorf("%s does not build: %w\n%s", b.pkg, err, said)
		}
		return err
	}); err != nil {
		return err
	}
	if err := each(ctx, controls, func(m mutant) error {
		said, err := g.test(g.binary(m.pkg), "", m)
		if err != nil || ended(said, m.test) != "PASS" {
			err = fmt.Errorf("without any mutant %s of %s does not pass: %w\n%s", m.test, m.pkg, err, shorten(said))
		}
		return err
	}); err != nil {
		return err
	}
	return each(ctx, mutants, func(m mutant) error {
		binary, began := g.binary(m.pkg), time.Now()
		if apart[m.name] != nil {
			binary = g.binary(m.name)
		}
		said, err := g.test(binary, m.name, m)
		if exited := (*exec.ExitError)(nil); errors.As(err, &exited) || errors.Is(err, exec.ErrWaitDelay) {
			err = nil // the test failed; its output has the reason
		}
		report(result{m, m.survived(said), said, time.Since(began)})
		return err
	})
}

// binary returns the path of a package's linked tests, with the woven mutants or with the named
// mutant.
func (g gate) binary(of string) string {
	return filepath.Join(g.temp, strings.ReplaceAll(of, "/", "_")+".test")
}

// overlay writes the changed files, and returns the path of the overlay file that makes the go
// command read them in place of the real files.
func (g gate) overlay(name string, changed map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range changed {
		copied := filepath.Join(g.temp, name+"_"+strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(g.root, file)] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name = filepath.Join(g.temp, name+".json")
	return name, os.WriteFile(name, text, 0o600)
}

// test runs the test of m with the woven mutant of that name, or none.
func (g gate) test(binary, name string, m mutant) (said string, err error) {
	levels := strings.Split(m.test, "/")
	for i, l := range levels {
		levels[i] = "^" + regexp.QuoteMeta(l) + "$"
	}
	args := append([]string{"-test.v", "-test.timeout=10m", "-test.run=" + strings.Join(levels, "/")}, m.flags...)
	return do(filepath.Join(g.root, m.pkg), name, binary, args...)
}

// do runs a command with long tests, and with a woven mutant or without one.
func do(dir, mutant, command string, args ...string) (said string, err error) {
	cmd := exec.Command(command, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), testenv.LongEnv+"=1", variable+"="+mutant)
	cmd.WaitDelay = time.Second // a process that a failed test left running may hold its output open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// each calls f for all elements, two at a time for each processor. After ctx has ended, it starts no
// further call. A running test continues, because a killed test would leave servers running.
func each[T any](ctx context.Context, all []T, f func(T) error) error {
	var running sync.WaitGroup
	errs, slots := make([]error, len(all)), make(chan struct{}, 2*runtime.NumCPU())
	for i, one := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = f(one)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// ended returns the result of a test in the output of go test -v: PASS, FAIL or SKIP, or "" if the
// test did not run to its end.
func ended(said, test string) string {
	line := regexp.MustCompile(`(?m)^ *--- (\w+): ` + regexp.QuoteMeta(test) + ` \(`).FindStringSubmatch(said)
	if line == nil {
		return ""
	}
	return line[1]
}

// survived returns the reason a mutant was not killed, or "". A panic kills only a mutant that
// expects it, because its test hangs.
func (m mutant) survived(said string) string {
	hangs := strings.HasPrefix(m.says, "panic:")
	switch {
	case !strings.Contains(said, m.says):
		return fmt.Sprintf("%s does not say %q:\n%s", m.test, m.says, said)
	case !hangs && (ended(said, m.test) != "FAIL" || strings.Contains("\n"+said, "\npanic: ")):
		return fmt.Sprintf("%s does not fail by itself:\n%s", m.test, said)
	}
	return ""
}

var passing = regexp.MustCompile(`(?m)^ *(===|--- PASS|--- SKIP).*\n`)

// shorten returns the first lines of a test's output.
func shorten(said string) string {
	lines := strings.SplitN(passing.ReplaceAllString(said, ""), "\n", 21)
	return strings.Join(lines[:min(20, len(lines))], "\n")
}
