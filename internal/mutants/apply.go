package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// apply returns the files that the mutant changes, changed.
func (m *mutant) apply(tree fs.FS) (map[string]string, error) {
	changed := map[string]string{}
	for _, h := range m.hunks {
		text, ok := changed[h.file]
		if !ok {
			b, err := fs.ReadFile(tree, h.file)
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.name, err)
			}
			text = string(b)
		}
		text, err := h.apply(text)
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %s: %w", m.name, h.file, err)
		}
		changed[h.file] = text
	}
	return changed, nil
}

// apply returns text with the hunk's change.
//
// Lines are compared without their indentation: code that was moved into a
// block is still the same guard, and gofmt need not like a mutant.
func (h *hunk) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	var old []string
	for _, l := range h.lines {
		if l.mark != '+' {
			old = append(old, strings.TrimSpace(l.text))
		}
	}
	if strings.Join(old, "") == "" {
		return "", fmt.Errorf("there is nothing to look for")
	}
	at := -1
	for i := range len(lines) - len(old) + 1 {
		switch {
		case !slices.EqualFunc(lines[i:i+len(old)], old, matches):
		case at >= 0:
			return "", fmt.Errorf("lines %d and %d both match:\n%s", at+1, i+1, strings.Join(old, "\n"))
		default:
			at = i
		}
	}
	if at < 0 {
		return "", fmt.Errorf("there is no such place any more:\n%s", strings.Join(old, "\n"))
	}
	out := slices.Clone(lines[:at])
	for _, l := range h.lines {
		switch l.mark {
		case '+':
			out = append(out, l.text)
			continue
		case ' ':
			out = append(out, lines[at])
		}
		at++
	}
	return strings.Join(append(out, lines[at:]...), "\n"), nil
}

// matches compares a line of code with one of a hunk, which may stop at "...".
func matches(code, line string) bool {
	code = strings.TrimSpace(code)
	if begin, open := strings.CutSuffix(line, "..."); open {
		return strings.HasPrefix(code, begin)
	}
	return code == line
}
