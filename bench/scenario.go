package main

import (
	"embed"
	"errors"
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

// A scenario is a file with a flag and its value a line. Its first comment says in a sentence what
// it shows.
type scenario struct {
	name  string
	about string
	lines []line
}

type line struct {
	number      int
	flag, value string
}

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
	return parseScenario(name, string(text))
}

func parseScenario(name, text string) (scenario, error) {
	s := scenario{name: name}
	for i, raw := range strings.Split(text, "\n") {
		raw = strings.TrimSpace(raw)
		if comment, ok := strings.CutPrefix(raw, "#"); ok || raw == "" {
			if s.about == "" {
				s.about = strings.TrimSpace(comment)
			}
			continue
		}
		flag, value, ok := strings.Cut(raw, " ")
		if !ok || strings.HasPrefix(flag, "-") {
			return scenario{}, fmt.Errorf("scenario %s: line %d: %q: must be a flag without its dashes, a space and a value, such as: callers 64", name, i+1, hide(raw))
		}
		if flag == "scenario" || flag == "list" || flag == "document" {
			return scenario{}, fmt.Errorf("scenario %s: line %d: %s is for the command line only",
				name, i+1, flag)
		}
		s.lines = append(s.lines, line{i + 1, flag, strings.TrimSpace(value)})
	}
	return s, nil
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
			fmt.Fprintf(w, "  %s\t%s\n", name, s.about)
		}
	}
	fmt.Fprintln(w, "\nSubjects (--subjects):")
	for _, s := range subject.All() {
		fmt.Fprintf(w, "  %s\t%s\n", s.Name, s.Title)
	}
	w.Flush()
}
