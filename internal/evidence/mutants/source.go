package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A source is the code of the module. It caches the places of each folder, or script, that was read.
type source struct {
	tree  fs.FS
	known map[string][]*place
}

// A place is a declaration or a script, which a mutant can change.
type place struct {
	name     string // newValue, Tally.Quorum or (*Lock).end, as in a stack trace; of a script ""
	file     string
	from, to int // within the file
	end      int // of the file
	text     string
	pkg      string        // name in the package clause
	fn       *ast.FuncDecl // nil: not a function
}

// find returns the places of an address. A function may occur once for each platform.
func (s source) find(at string) (found []*place, err error) {
	dir, name, _ := strings.Cut(at, " ")
	if s.known[dir] == nil {
		if s.known[dir], err = s.read(dir); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(s.known[dir]), func(p *place) bool { return p.name != name }), nil
}

func (s source) read(dir string) (all []*place, err error) {
	files := []string{dir}
	if path.Ext(dir) != ".lua" {
		files, _ = fs.Glob(s.tree, path.Join(dir, "*.go"))
	}
	for _, file := range files {
		text, err := fs.ReadFile(s.tree, file)
		if err != nil {
			return nil, err
		}
		if path.Ext(file) == ".lua" {
			all = append(all, &place{file: file, to: len(text), text: string(text)})
			continue
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			from, to := int(d.Pos()-parsed.FileStart), int(d.End()-parsed.FileStart)
			fn, _ := d.(*ast.FuncDecl)
			all = append(all, &place{nameOf(d), file, from, to, len(text), string(text[from:to]), parsed.Name.Name, fn})
		}
	}
	return all, nil
}

func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		on, _, _ := strings.Cut(types.ExprString(d.Recv.List[0].Type), "[")
		if on[0] == '*' {
			on = "(" + on + ")"
		}
		return on + "." + d.Name.Name
	case *ast.GenDecl:
		if v, ok := d.Specs[0].(*ast.ValueSpec); ok {
			return v.Names[0].Name
		}
	}
	return ""
}

// An edit replaces a part of a file.
type edit struct {
	file     string
	from, to int
	text     string
}

// edit returns the edited files. Edits at the same position keep their order.
func (s source) edit(edits []edit) (map[string]string, error) {
	files := map[string]string{}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	for _, e := range slices.Backward(edits) {
		if _, ok := files[e.file]; !ok {
			text, err := fs.ReadFile(s.tree, e.file)
			if err != nil {
				return nil, err
			}
			files[e.file] = string(text)
		}
		files[e.file] = files[e.file][:e.from] + e.text + files[e.file][e.to:]
	}
	return files, nil
}
