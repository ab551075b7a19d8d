package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// A mutant is one deliberate fault and the test that must notice it.
type mutant struct {
	name    string
	guard   string // the rule that the mutant breaks
	without string // the harm that follows
	pkg     string // the killer's package, as a folder of the module
	test    string
	flags   []string // the test's own
	says    string   // the failure must contain it
	hangs   bool
	hunks   []hunk
}

// A hunk is one change to one declaration.
type hunk struct {
	at    string // "redlock (*Lock).end", or the path of a Lua script
	lines []line
}

// A line of a hunk begins with ' ' (it is there and stays), '-' (goes) or '+'
// (comes).
type line struct {
	mark byte
	text string
}

const suffix = ".diff"

// load reads all mutants of a folder, by name.
func load(folder fs.FS) ([]mutant, error) {
	names, err := fs.Glob(folder, "*"+suffix)
	if err != nil {
		return nil, err
	}
	var all []mutant
	var errs []error
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(name, suffix), string(text))
		all, errs = append(all, m), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// parse reads one mutant.
func parse(name, text string) (mutant, error) {
	m, killer, hangs := mutant{name: name}, "", "no"
	fail := func(format string, args ...any) (mutant, error) {
		return m, fmt.Errorf("mutant "+name+": "+format, args...)
	}
	fields := map[string]*string{"guard": &m.guard, "without": &m.without, "killed by": &killer, "says": &m.says, "hangs": &hangs}
	head, body, _ := strings.Cut(text, "\n--- ")
	for l := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(l), ": ")
		if field := fields[key]; field != nil {
			*field = value
		} else if key != "" {
			return fail("line %q: unknown", strings.TrimSpace(l))
		}
	}
	words := strings.Fields(killer)
	switch m.hangs = hangs == "yes"; {
	case m.guard == "" || m.without == "":
		return fail("no guard, or nothing that happens without it")
	case len(words) < 2 || !strings.HasPrefix(words[1], "Test"):
		return fail("killed by: %q is not a package and a test", killer)
	}
	m.pkg, m.test, m.flags = words[0], words[1], words[2:]
	for _, part := range strings.Split(body, "\n--- ") {
		at, hunks, _ := strings.Cut(part, "\n")
		for _, text := range strings.Split("\n"+strings.TrimSpace(hunks), "\n@@\n")[1:] {
			h, err := parseHunk(at, text)
			if err != nil {
				return fail("%w", err)
			}
			m.hunks = append(m.hunks, h)
		}
	}
	if len(m.hunks) == 0 {
		return fail("no change")
	}
	return m, nil
}

func parseHunk(at, text string) (hunk, error) {
	h := hunk{at: at}
	changed := false
	for _, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if l == "" {
			l = " " // an empty line that stays, without the space at its end
		}
		if !strings.ContainsRune(" -+", rune(l[0])) {
			return h, fmt.Errorf("%s: line %q begins with neither space, - nor +", at, l)
		}
		changed = changed || l[0] != ' '
		h.lines = append(h.lines, line{l[0], l[1:]})
	}
	if !changed {
		return h, fmt.Errorf("%s: a hunk changes nothing", at)
	}
	return h, nil
}

// apply returns the files that the mutant changes, changed.
func (m *mutant) apply(tree fs.FS) (map[string]string, error) {
	s := source{tree, map[string]string{}}
	for _, h := range m.hunks {
		if err := h.apply(s); err != nil {
			return nil, fmt.Errorf("mutant %s: %s: %w", m.name, h.at, err)
		}
	}
	return s.changed, nil
}

// apply changes the source.
//
// Lines are compared without their indentation: code that was moved into a
// block is still the same guard, and gofmt need not like a mutant.
func (h *hunk) apply(s source) error {
	var old []string
	for _, l := range h.lines {
		if l.mark != '+' {
			old = append(old, strings.TrimSpace(l.text))
		}
	}
	if strings.Join(old, "") == "" {
		return errors.New("there is nothing to look for")
	}
	spans, err := s.find(h.at)
	if err != nil {
		return err
	}
	var places []span
	for _, in := range spans {
		for i := range len(in.lines) - len(old) + 1 {
			if slices.EqualFunc(in.lines[i:i+len(old)], old, matches) {
				places = append(places, span{in.file, in.first + i, nil})
			}
		}
	}
	switch len(places) {
	case 1:
	case 0:
		return fmt.Errorf("there is no such place any more:\n%s", strings.Join(old, "\n"))
	default:
		return fmt.Errorf("%v and %v both match:\n%s", places[0], places[1], strings.Join(old, "\n"))
	}
	return s.replace(places[0], h.lines)
}

// matches compares a line of code with one of a hunk, which may stop at "...".
func matches(code, line string) bool {
	code = strings.TrimSpace(code)
	if begin, open := strings.CutSuffix(line, "..."); open {
		return strings.HasPrefix(code, begin)
	}
	return code == line
}
