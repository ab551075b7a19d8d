package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// variable of the environment names the mutant that woven code is to be.
const variable = "REDQUORUM_MUTANT"

// A weaver puts many mutants into one copy of the code, so that they share what is compiled and
// linked: beside each function stand its mutants, and the function calls the one that the environment
// names. Without a name it does what it always does.
//
//	func half(n int) int {
//		if chosenMutant == "half-twice" {
//			return half_half_twice(n)
//		}
//		return n / 2
//	}
type weaver struct {
	tree    fs.FS
	inserts map[string][]insert // by file
}

// An insert is text that is put into a file.
type insert struct {
	at   int
	text string
}

// weave returns the files of a copy with all mutants that can be woven, and by number those of the others.
func weave(tree fs.FS, mutants []mutant) (woven map[string]string, apart []map[string]string, err error) {
	w := weaver{tree, map[string][]insert{}}
	apart = make([]map[string]string, len(mutants))
	var errs []error
	for i := range mutants {
		changed, err := mutants[i].apply(tree)
		if errs = append(errs, err); err != nil {
			continue
		}
		isWoven, err := w.add(&mutants[i], changed)
		if errs = append(errs, err); !isWoven {
			apart[i] = changed
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	woven, err = w.woven()
	return woven, apart, err
}

// add takes a mutant in, of which changed are the files. It reports false for one that must be built
// apart: that of a script, of a variable or of a signature.
func (w *weaver) add(m *mutant, changed map[string]string) (bool, error) {
	if slices.ContainsFunc(m.hunks, func(h hunk) bool { return !strings.Contains(h.at, " ") }) {
		return false, nil
	}
	all := map[string][]insert{}
	for file, text := range changed {
		original, err := fs.ReadFile(w.tree, file)
		if err != nil {
			return false, err
		}
		before, errBefore := parser.ParseFile(token.NewFileSet(), file, original, parser.SkipObjectResolution)
		after, errAfter := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if errBefore != nil || errAfter != nil || len(before.Decls) != len(after.Decls) {
			return false, nil // the compiler says it better
		}
		for i, d := range before.Decls {
			was, is := textOf(string(original), before, d), textOf(text, after, after.Decls[i])
			if was == is {
				continue
			}
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || !strings.HasPrefix(is, was[:f.Body.Lbrace-f.Pos()+1]) {
				return false, nil
			}
			name := f.Name.Name + "_" + strings.ReplaceAll(m.name, "-", "_")
			call, ok := callOf(f, name)
			if !ok {
				return false, nil
			}
			at := int(f.Name.Pos() - f.Pos())
			all[file] = append(all[file],
				insert{int(f.Body.Lbrace - before.FileStart + 1), fmt.Sprintf("\nif chosenMutant == %q {\n%s\n}\n", m.name, call)},
				// A compiler's complaint names the mutant.
				insert{len(original), fmt.Sprintf("\n//line %s%s:1\n%s%s%s\n", m.name, suffix, is[:at], name, is[at+len(f.Name.Name):])},
			)
		}
	}
	for file, inserts := range all {
		w.inserts[file] = append(w.inserts[file], inserts...)
	}
	return true, nil
}

func textOf(text string, file *ast.File, d ast.Decl) string {
	return text[d.Pos()-file.FileStart : d.End()-file.FileStart]
}

// callOf is the statement in f that calls the function of that name in its place, if f has a name for
// all that it is called with.
func callOf(f *ast.FuncDecl, name string) (string, bool) {
	args, named := names(f.Type.Params)
	if f.Recv != nil {
		on, isNamed := names(f.Recv)
		name, named = strings.Join(on, "")+"."+name, named && isNamed
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results == nil {
		return call + "\nreturn", named
	}
	return "return " + call, named
}

// names are those of parameters, as they are passed on. It reports whether all have one.
func names(of *ast.FieldList) (all []string, named bool) {
	named = true
	for _, p := range of.List {
		dots := ""
		if _, ok := p.Type.(*ast.Ellipsis); ok {
			dots = "..."
		}
		for _, n := range p.Names {
			all, named = append(all, n.Name+dots), named && n.Name != "_"
		}
		named = named && len(p.Names) > 0
	}
	return all, named
}

// woven returns the files of the copy that differ from the tree's.
func (w *weaver) woven() (map[string]string, error) {
	files := map[string]string{}
	for file, inserts := range w.inserts {
		original, err := fs.ReadFile(w.tree, file)
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(inserts, func(a, b insert) int { return a.at - b.at })
		text, last := strings.Builder{}, 0
		for _, in := range inserts {
			text.Write(original[last:in.at])
			text.WriteString(in.text)
			last = in.at
		}
		text.Write(original[last:])
		files[file] = text.String()
		parsed, err := parser.ParseFile(token.NewFileSet(), file, original, parser.PackageClauseOnly)
		if err != nil {
			return nil, err
		}
		files[path.Join(path.Dir(file), "chosen_mutant.go")] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar chosenMutant = os.Getenv(%q)\n", parsed.Name, variable)
	}
	return files, nil
}
