package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/report"
)

// A page has commands as indented code. The table of a command is the text between two marks below
// it:
//
//	go -C bench run . --nodes process --scenario steady
//
//	<!-- figures -->
//	<!-- end -->
//
// The first command that makes a picture of that name draws the picture in the page. The line that
// begins with "Measured: " has the commit, the date and the machine.
var (
	commandLine  = regexp.MustCompile(`(?m)^    go -C bench run \. (.*)$`)
	measuredLine = regexp.MustCompile(`(?m)^Measured: .*$`)
)

// measureDocument runs all commands of a page. It reads all commands first, so a mistake in the
// last one costs no measurements. It writes the figures of each command before it runs the next. A
// command that fails leaves its old figures.
func measureDocument(ctx context.Context, file string, stdout io.Writer) (found []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--document: %w", err)
	}
	page, began, code, drawn := string(text), time.Now(), commit(ctx), map[string]bool{}
	var commands []*options
	lines := commandLine.FindAllStringSubmatch(page, -1)
	for _, line := range lines {
		o, err := parse(strings.Fields(line[1]))
		if err != nil {
			return nil, fmt.Errorf("--document: %s: %s: %w", file, line[1], err)
		}
		commands = append(commands, o)
	}
	var errs []error
	for i, o := range commands {
		fmt.Fprintf(stdout, "\n%s\n\n", lines[i][0])
		run, err := o.measure(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", lines[i][1], err))
			continue
		}
		found = append(found, doubleHolders(run)...)
		page = take(page, lines[i][0], run)
		page = measuredLine.ReplaceAllString(page, measured(code, began, run.Machine))
		errs = append(errs, o.show(stdout, run), os.WriteFile(file, []byte(page), 0o644))
		for name, svg := range report.SVGs(run) {
			if strings.Contains(page, "(pictures/"+name+")") && !drawn[name] {
				drawn[name] = true
				errs = append(errs, os.WriteFile(filepath.Join(filepath.Dir(file), "pictures", name), svg, 0o644))
			}
		}
	}
	return found, errors.Join(errs...)
}

// take returns the page after replacing the figures of a command.
func take(page, command string, run record.Run) string {
	var table bytes.Buffer
	report.Markdown(&table, run)
	between := regexp.MustCompile(`(?s)(` + regexp.QuoteMeta(command) + `\n\n<!-- figures -->\n).*?(<!-- end -->)`)
	return between.ReplaceAllString(page, "${1}\n"+table.String()+"\n${2}")
}

func measured(commit string, at time.Time, m record.Machine) string {
	return fmt.Sprintf("Measured: %s, %s; %s, %s/%s, %d CPUs, %s.", commit, at.UTC().Format("2 January 2006"), m.Servers, m.OS, m.Arch, m.CPUs, m.Go)
}

// commit returns the name of the code that is measured.
func commit(ctx context.Context) string {
	name, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown commit"
	}
	return "commit `" + strings.TrimSpace(string(name)) + "`"
}
