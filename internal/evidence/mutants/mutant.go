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
	says    string   // text that the failure must contain
	hunks   []hunk
}

// A hunk replaces lines of one declaration. Its lines have no indentation.
type hunk struct {
	at       string // "redlock (*Lock).end", or the path of a Lua script
	old, new []string
}

// load reads the mutants of a folder whose names match one of the patterns; all without a pattern.
func load(folder fs.FS, patterns ...string) (all []mutant, err error) {
	if len(patterns) == 0 {
		patterns = []string{"*"}
	}
	for _, p := range patterns {
		names, _ := fs.Glob(folder, p+".diff")
		if len(names) == 0 {
			return nil, fmt.Errorf("no mutant is called %s", p)
		}
		for _, name := range names {
			text, err := fs.ReadFile(folder, name)
			if err != nil {
				return nil, err
			}
			m, err := parse(strings.TrimSuffix(name, ".diff"), string(text))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.name, err)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// parse reads one mutant.
func parse(name, text string) (mutant, error) {
	m, killer := mutant{name: name}, ""
	fields := map[string]*string{"guard": &m.guard, "without": &m.without, "killed by": &killer, "says": &m.says}
	head, body, _ := strings.Cut(text, "\n--- ")
	for l := range strings.Lines(strings.TrimSpace(head)) {
		key, value, _ := strings.Cut(l, ":")
		if fields[key] == nil {
			return m, fmt.Errorf("unknown field %q", key)
		}
		*fields[key] = strings.TrimSpace(value)
	}
	words := strings.Fields(killer)
	if m.guard == "" || m.without == "" || len(words) < 2 {
		return m, errors.New("specify guard, without, and killed by with a package and a test")
	}
	m.pkg, m.test, m.flags = words[0], words[1], words[2:]
	for _, part := range strings.Split(body, "\n--- ") {
		at, hunks, _ := strings.Cut(strings.TrimSpace(part), "\n@@\n")
		for _, text := range strings.Split(hunks, "\n@@\n") {
			h, err := parseHunk(at, text)
			if err != nil {
				return m, fmt.Errorf("%s: %w", at, err)
			}
			m.hunks = append(m.hunks, h)
		}
	}
	return m, nil
}

func parseHunk(at, text string) (hunk, error) {
	h := hunk{at: at}
	for _, l := range strings.Split(text, "\n") {
		code := strings.TrimSpace(l[min(1, len(l)):])
		switch {
		case l == "" || l[0] == ' ':
			h.old, h.new = append(h.old, code), append(h.new, code)
		case l[0] == '-':
			h.old = append(h.old, code)
		case l[0] == '+':
			h.new = append(h.new, code)
		default:
			return h, fmt.Errorf("line %q begins with neither space, - nor +", l)
		}
	}
	if len(h.old) == 0 || slices.Equal(h.old, h.new) {
		return h, errors.New("a hunk changes nothing, or no line that is there")
	}
	return h, nil
}

// A change is the new text of a place.
type change struct {
	*place
	text string
}

// apply returns the changes that make the mutant.
func (m *mutant) apply(s source) (all []change, err error) {
	for _, h := range m.hunks {
		places, err := s.find(h.at)
		if err != nil {
			return nil, err
		}
		var found []change
		for _, p := range places {
			is := change{p, p.text}
			for _, c := range all {
				if c.place == p {
					is = c
				}
			}
			lines := strings.Split(is.text, "\n")
			for i := range len(lines) - len(h.old) + 1 {
				if slices.EqualFunc(lines[i:i+len(h.old)], h.old, func(line, old string) bool { return strings.TrimSpace(line) == old }) {
					text := strings.Join(slices.Concat(lines[:i], h.new, lines[i+len(h.old):]), "\n")
					found = append(found, change{p, text})
				}
			}
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("mutant %s: %s: %d places match, and there must be one:\n%s", m.name, h.at, len(found), strings.Join(h.old, "\n"))
		}
		all = append(slices.DeleteFunc(all, func(c change) bool { return c.place == found[0].place }), found[0])
	}
	return all, nil
}
