package main

import (
	"fmt"
	"go/ast"
	"path"
	"strings"
)

// variable is the environment variable that selects the mutant in woven code.
const variable = "REDQUORUM_MUTANT"

// weave returns the files of one copy of the code with all mutants that can be woven, and the files
// of each other mutant by its name. The mutants of a function follow it, and the function calls the
// mutant that the environment selects:
//
//	func half(n int) int {
//		if chosenMutant == "half-twice" {
//			return half_half_twice(n)
//		}
//		return n / 2
//	}
func weave(s source, mutants []mutant) (woven map[string]string, apart map[string]map[string]string, err error) {
	apart = map[string]map[string]string{}
	chosen := map[string]string{}
	var all []edit
	for _, m := range mutants {
		changes, err := m.apply(s)
		if err != nil {
			return nil, nil, err
		}
		var mine, alone []edit
		for _, c := range changes {
			alone = append(alone, edit{c.file, c.from, c.to, c.text})
			mine = append(mine, c.weave(m.name)...)
		}
		if len(mine) < 2*len(changes) {
			if apart[m.name], err = s.edit(alone); err != nil {
				return nil, nil, err
			}
			continue
		}
		all = append(all, mine...)
		for _, c := range changes {
			chosen[path.Join(path.Dir(c.file), "chosen_mutant.go")] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar chosenMutant = os.Getenv(%q)\n", c.pkg, variable)
		}
	}
	woven, err = s.edit(all)
	for file, text := range chosen {
		woven[file] = text
	}
	return woven, apart, err
}

// weave returns the edits that add a mutant to its function: a call, and the function that it calls.
// It returns nil for a mutant that must be built separately: a script, a variable, a new signature,
// or a function with an unnamed parameter.
func (c change) weave(mutant string) []edit {
	if c.fn == nil {
		return nil
	}
	body := int(c.fn.Body.Lbrace-c.fn.Pos()) + 1
	args, named := names(c.fn.Type.Params)
	if !named || !strings.HasPrefix(c.text, c.place.text[:body]) {
		return nil
	}
	name := c.fn.Name.Name + "_" + strings.ReplaceAll(mutant, "-", "_")
	call := name
	if c.fn.Recv != nil {
		on, named := names(c.fn.Recv)
		if !named {
			return nil
		}
		call = on + "." + name
	}
	call += "(" + args + ")"
	if c.fn.Type.Results == nil {
		call += "\nreturn"
	} else {
		call = "return " + call
	}
	at := int(c.fn.Name.Pos() - c.fn.Pos())
	return []edit{
		{c.file, c.from + body, c.from + body, fmt.Sprintf("\nif chosenMutant == %q {\n%s\n}\n", mutant, call)},
		// The compiler's errors name the mutant.
		{c.file, c.end, c.end, fmt.Sprintf("\n//line %s.diff:1\n%s%s%s\n", mutant, c.text[:at], name, c.text[at+len(c.fn.Name.Name):])},
	}
}

// names returns the parameters as arguments of a call, and reports whether all have a name.
func names(of *ast.FieldList) (list string, named bool) {
	var all []string
	for _, p := range of.List {
		if len(p.Names) == 0 {
			return "", false
		}
		for _, n := range p.Names {
			if n.Name == "_" {
				return "", false
			}
			all = append(all, n.Name)
		}
		if _, ok := p.Type.(*ast.Ellipsis); ok {
			all[len(all)-1] += "..."
		}
	}
	return strings.Join(all, ", "), true
}
