package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

//go:embed scenarios/*.txt
var scenarios embed.FS

// A scenario is a file with a flag and its value a line.
type scenario struct{ name, text string }

// loadScenario reads one of those that come along, or a file.
func loadScenario(name string) (scenario, error) {
	text, err := scenarios.ReadFile("scenarios/" + name + ".txt")
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = os.ReadFile(name); errors.Is(err, fs.ErrNotExist) {
			return scenario{}, fmt.Errorf("there is no scenario %q, and no such file; there are %s",
				name, strings.Join(scenarioNames(), ", "))
		}
	}
	if err != nil {
		return scenario{}, err
	}
	return scenario{name, string(text)}, nil
}

// about is the first comment, which says in a sentence what the scenario shows.
func (s scenario) about() string {
	_, comment, _ := strings.Cut(s.text, "#")
	comment, _, _ = strings.Cut(comment, "\n")
	return strings.TrimSpace(comment)
}

// set sets the flags.
func (s scenario) set(flags *flag.FlagSet) error {
	for i, raw := range strings.Split(s.text, "\n") {
		raw = strings.TrimSpace(raw)
		if raw == "" || raw[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(raw, " ")
		var err error
		switch {
		case !ok || name[0] == '-':
			err = errors.New("must be a flag without its dashes, a space and a value, such as: callers 64")
		case name == "scenario" || name == "list" || name == "document":
			err = errors.New("for the command line only")
		default:
			err = flags.Set(name, strings.TrimSpace(value))
		}
		if err != nil {
			return fmt.Errorf("scenario %s: line %d: %q: %w", s.name, i+1, hide(raw), err)
		}
	}
	return nil
}

func scenarioNames() []string {
	files, _ := fs.Glob(scenarios, "scenarios/*.txt") // the pattern is right
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".txt")
	}
	return files
}

// list prints what there is to choose from.
func list(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Scenarios (--scenario):")
	for _, name := range scenarioNames() {
		if s, err := loadScenario(name); err == nil { // a test reads them all
			fmt.Fprintf(w, "  %s\t%s\n", name, s.about())
		}
	}
	fmt.Fprintln(w, "\nSubjects (--subjects):")
	for _, s := range subject.All() {
		fmt.Fprintf(w, "  %s\t%s\n", s.Name, s.Title)
	}
	w.Flush()
}
