package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/report"
)

// A document is a Markdown file whose figures are measured. A command in it,
//
//	go -C bench run . --nodes process --scenario steady
//
// as an indented line of code, makes the table that follows it, if one does, and the pictures that
// the file shows under the names that the command gives them, unless an earlier command has. The line that begins with "Measured: "
// says with what code, when and where. So figures and commands cannot part.
type document struct {
	path     string
	lines    []string
	commands []documented
	pictures map[string]string // those to draw: path from the document's folder, by name of the file
}

// A documented command is the text of one, and its options.
type documented struct {
	text string
	*options
}

const (
	commandPrefix  = "    go -C bench run . "
	measuredPrefix = "Measured: "
)

var shownPicture = regexp.MustCompile(`[\w./-]+\.svg`)

// openDocument reads a document and checks its commands: a run takes minutes, and should not end
// with the mistake in the last one.
func openDocument(path string) (*document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--document: %w", err)
	}
	d := &document{path: path, lines: strings.Split(string(text), "\n"), pictures: map[string]string{}}
	for i, line := range d.lines {
		for _, picture := range shownPicture.FindAllString(line, -1) {
			d.pictures[filepath.Base(picture)] = picture
		}
		args, ok := strings.CutPrefix(line, commandPrefix)
		if !ok {
			continue
		}
		fail := func(err error) (*document, error) {
			return nil, fmt.Errorf("--document: %s: line %d: %w", path, i+1, err)
		}
		if strings.ContainsAny(args, `'"\`) {
			return fail(errors.New("no shell reads this command: write it without quotes"))
		}
		o, err := parse(strings.Fields(args))
		if err != nil {
			return fail(err)
		}
		if o.list || o.document != "" {
			return fail(errors.New("--list and --document measure nothing"))
		}
		if slices.ContainsFunc(d.commands, func(c documented) bool { return c.text == line }) {
			return fail(errors.New("this command is there twice"))
		}
		d.commands = append(d.commands, documented{line, o})
	}
	if len(d.commands) == 0 {
		return nil, fmt.Errorf("--document: %s has no line that begins with %q", path, commandPrefix)
	}
	return d, nil
}

// measure runs all commands. What one has measured is in the files before the next begins, and a
// command that fails leaves what was there and keeps none of the others from running.
func (d *document) measure(ctx context.Context, stdout, stderr io.Writer) ([]string, error) {
	began, commit := time.Now(), commit(ctx)
	var found []string // locks with two holders
	var errs []error
	for _, c := range d.commands {
		if err := ctx.Err(); err != nil {
			return found, errors.Join(append(errs, err)...)
		}
		fmt.Fprintf(stdout, "\n%s\n\n", c.text)
		run, err := c.measure(ctx, stderr)
		if err == nil {
			found = append(found, doubleHolders(run)...)
			err = errors.Join(c.show(stdout, run), d.take(c, run), d.write(measuredLine(commit, began, run.Machine)))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSpace(c.text), err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.pictures)) {
		errs = append(errs, fmt.Errorf("%s shows %s, which none of its commands has drawn", d.path, d.pictures[name]))
	}
	return found, errors.Join(errs...)
}

// take puts the table of a run below its command, and writes the pictures that are shown.
func (d *document) take(c documented, run record.Run) error {
	from := slices.Index(d.lines, c.text) + 1
	for from < len(d.lines) && strings.TrimSpace(d.lines[from]) == "" {
		from++
	}
	to := from
	for to < len(d.lines) && strings.HasPrefix(d.lines[to], "|") {
		to++
	}
	if to > from {
		var b bytes.Buffer
		report.Markdown(&b, run)
		d.lines = slices.Replace(d.lines, from, to, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
	}
	for _, p := range report.SVGs(run) {
		if shown, ok := d.pictures[p.Name]; ok {
			delete(d.pictures, p.Name)
			if err := os.WriteFile(filepath.Join(filepath.Dir(d.path), filepath.FromSlash(shown)), p.SVG, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// write saves the document with its line that says what was measured.
func (d *document) write(measured string) error {
	for i, line := range d.lines {
		if strings.HasPrefix(line, measuredPrefix) {
			d.lines[i] = measured
		}
	}
	return os.WriteFile(d.path, []byte(strings.Join(d.lines, "\n")), 0o644)
}

func measuredLine(commit string, at time.Time, m record.Machine) string {
	return fmt.Sprintf("%s%s, %s; %s, %s/%s, %d CPUs, %s.", measuredPrefix, commit, at.UTC().Format("2 January 2006"),
		m.Servers, m.OS, m.Arch, m.CPUs, m.Go)
}

// commit names the code that is measured.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown commit" // the code may have come without its history
	}
	name := string(bytes.TrimSpace(out))
	if exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD", "--", ":/*.go", ":/*go.mod").Run() != nil {
		name += "-dirty"
	}
	return "commit `" + name + "`"
}
