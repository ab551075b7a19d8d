package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
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
	var found []span
	for _, file := range files {
		text, err := s.read(file)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(text, path.Ext("." + name)[1:]) {
			continue
		}
		positions := token.NewFileSet()
		parsed, err := parser.ParseFile(positions, file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(text, "\n")
		for _, d := range parsed.Decls {
			if declares(d, name) {
				first, last := positions.Position(d.Pos()).Line-1, positions.Position(d.End()).Line
				found = append(found, span{file, first, lines[first:last]})
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("package %s has no %s", pkg, name)
	}
	return found, nil
}

// declares reports whether d declares name: newValue, Tally.Quorum or (*Lock).end.
func declares(d ast.Decl, name string) bool {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return receiver(d)+d.Name.Name == name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			var names []*ast.Ident
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				names = spec.Names
			case *ast.TypeSpec:
				names = []*ast.Ident{spec.Name}
			}
			if slices.ContainsFunc(names, func(n *ast.Ident) bool { return n.Name == name }) {
				return true
			}
		}
	}
	return false
}

// receiver returns "T." or "(*T)." for a method, and "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	form, t := "%s.", d.Recv.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		form, t = "(*%s).", pointer.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	return fmt.Sprintf(form, t)
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
