package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// A source is the module's files, of which some are changed.
type source struct {
	tree    fs.FS
	changed map[string]string // by path
}

// A span is some lines of a file.
type span struct {
	file  string
	first int // counted from 0
	lines []string
}

func (s span) String() string { return fmt.Sprintf("%s:%d", s.file, s.first+1) }

// find returns what an address stands for: "redlock (*Lock).end" for a
// declaration, which may be there once for each platform, "pool/internal/wire/lua/mark.lua" for
// a whole script.
func (s source) find(at string) ([]span, error) {
	pkg, name, isGo := strings.Cut(at, " ")
	if !isGo {
		if path.Ext(at) != ".lua" {
			return nil, fmt.Errorf("%q is neither a package with a declaration nor a Lua script", at)
		}
		text, err := s.read(at)
		return []span{{at, 0, strings.Split(text, "\n")}}, err
	}
	files, err := fs.Glob(s.tree, path.Join(pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	head := headOf(name)
	var found []span
	for _, file := range files {
		text, err := s.read(file)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if head.MatchString(line) {
				end := i + 1
				for end < len(lines) && !begins.MatchString(lines[end]) {
					end++
				}
				found = append(found, span{file, i, lines[i:end]})
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("package %s has no %s", pkg, name)
	}
	return found, nil
}

// begins matches the line at which the next declaration, or its comment, begins.
var begins = regexp.MustCompile(`^(func|type|var|const|//)`)

// headOf matches the first line of the declaration of a name: newValue, Tally.Quorum or (*Lock).end.
func headOf(name string) *regexp.Regexp {
	on, method, isMethod := strings.Cut(name, ").")
	star := `\*`
	if !isMethod {
		on, method, isMethod = strings.Cut(name, ".")
		star = ""
	}
	if !isMethod {
		return regexp.MustCompile(`^(func|type|var|const) ` + name + `\b`)
	}
	return regexp.MustCompile(`^func \((\w+ )?` + star + strings.TrimPrefix(on, "(*") + `(\[.*\])?\) ` + method + `\(`)
}

func (s source) read(file string) (string, error) {
	if text, ok := s.changed[file]; ok {
		return text, nil
	}
	text, err := fs.ReadFile(s.tree, file)
	return string(text), err
}

// replace has the lines of a hunk take the place of those from at on that they
// match.
func (s source) replace(at span, hunk []line) error {
	text, err := s.read(at.file)
	if err != nil {
		return err
	}
	lines := strings.Split(text, "\n")
	out, rest := lines[:at.first:at.first], lines[at.first:]
	for _, l := range hunk {
		switch l.mark {
		case '+':
			out = append(out, l.text)
			continue
		case ' ':
			out = append(out, rest[0])
		}
		rest = rest[1:]
	}
	s.changed[at.file] = strings.Join(append(out, rest...), "\n")
	return nil
}
