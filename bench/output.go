package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/report"
)

// show prints the summary, and writes the files that were asked for. One that cannot be written
// costs neither the summary nor the others: the run took its time.
func (o *options) show(stdout io.Writer, run record.Run) error {
	errs := []error{report.Text(stdout, run)}
	for _, f := range []struct {
		name  string
		write func(io.Writer, record.Run) error
	}{
		{o.json, report.JSON}, {o.html, report.HTML}, {o.benchstat, report.Benchstat},
	} {
		if f.name == "" {
			continue
		}
		errs = append(errs, writeFile(f.name, func(w io.Writer) error { return f.write(w, run) }))
	}
	if o.svg != "" {
		errs = append(errs, writePictures(o.svg, run))
	}
	return errors.Join(errs...)
}

func writePictures(folder string, run record.Run) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	for _, p := range report.SVGs(run) {
		if err := writePicture(filepath.Join(folder, p.Name), p); err != nil {
			return err
		}
	}
	return nil
}

func writePicture(name string, p report.Picture) error {
	return writeFile(name, func(w io.Writer) error {
		_, err := w.Write(p.SVG)
		return err
	})
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

// doubleHolders names redquorum's locks that had two holders at once. That must never happen, under
// any load.
func doubleHolders(run record.Run) (found []string) {
	for _, s := range run.Summaries() {
		if s.Violations > 0 && strings.HasPrefix(s.Subject.Name, "redquorum") && s.Subject.Name != "redquorum-noguard" {
			found = append(found, fmt.Sprintf("%s: %d pairs of holders of one lock at one time, of %d checked", s.Subject.Name, s.Violations, s.Checked))
		}
	}
	return found
}
