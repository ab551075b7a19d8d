package doctor

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheDoctorsPageExplainsEveryFinding, and none that there is not. What a finding is
// is taken from the source: the check, the severity, and the text with … for what differs.
func TestTheDoctorsPageExplainsEveryFinding(t *testing.T) {
	t.Parallel()
	var explained []string
	for _, row := range rows(t) {
		for _, says := range row.says {
			explained = append(explained, row.check+" | "+row.severity+" | "+says)
		}
	}
	findings := inSource(t)
	assert.Greater(t, len(findings), 50)
	for _, f := range findings {
		assert.Contains(t, explained, f, "docs/DOCTOR.md does not explain a finding")
	}
	for _, e := range explained {
		assert.Contains(t, findings, e, "docs/DOCTOR.md explains a finding that there is not")
	}
}

type row struct {
	check, severity string
	says            []string
	advice          string
}

var (
	section = regexp.MustCompile(`(?m)^## (\w+)\n`)
	item    = regexp.MustCompile("(?m)^- (note|warning|fatal): (`[^`]+`(?:, `[^`]+`)*)\\. (.+)$")
)

// rows reads the page: a heading for each check, and below it a list of its findings.
func rows(t *testing.T) (all []row) {
	t.Helper()
	page, err := os.ReadFile("../../docs/DOCTOR.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(strings.ReplaceAll(string(page), "\n  ", " "), "\n\n## ")
	require.True(t, found)
	text = "## " + text
	checks, parts := section.FindAllStringSubmatch(text, -1), section.Split(text, -1)[1:]
	for i, part := range parts {
		found := item.FindAllStringSubmatch(part, -1)
		require.Len(t, found, strings.Count(part, "\n- "), "%s: an item is: severity, texts in backquotes, advice", checks[i][1])
		for _, f := range found {
			texts := strings.Split(strings.Trim(f[2], "`"), "`, `")
			all = append(all, row{checks[i][1], f[1], texts, f[3]})
		}
	}
	return all
}

// inSource returns the findings that package doctor can make, but for what is in order.
func inSource(t *testing.T) (all []string) {
	t.Helper()
	s := source(t)
	s.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			s.function = n
		case *ast.CompositeLit:
			if isIdent(n.Type, "Finding") || s.listed[n] {
				all = append(all, s.finding(t, n)...)
			}
		}
		return true
	})
	for _, p := range purposes("") {
		var grants []string
		newer := true
		for _, r := range p.rights {
			grants = append(grants, r.grant)
			newer = newer && r.newer
		}
		list := strings.Join(grants, " ")
		all = append(all, fmt.Sprintf("%s | %v | the … lacks %s", p.check, p.severity, list))
		if list == "+eval +script|load" {
			all = append(all, p.check+" | fatal | the … lacks "+list)
		}
		if !newer { // or a server need not know them
			all = append(all, fmt.Sprintf("%s | %v | it does not know what is granted by …", p.check, p.severity))
		}
	}
	slices.Sort(all)
	// The variable is set to this text only where the clock is in order.
	all = slices.DeleteFunc(all, func(f string) bool { return f == "clock | warning | its clock agrees with ours…" })
	return slices.Compact(all)
}

// A sourceCode is the package's, without its tests.
type sourceCode struct {
	files    []*ast.File
	function *ast.FuncDecl              // that is looked at
	words    map[string]string          // constants
	listed   map[*ast.CompositeLit]bool // elements of a []Finding, which do not say their type
}

func (s *sourceCode) inspect(look func(ast.Node) bool) {
	for _, f := range s.files {
		ast.Inspect(f, look)
	}
}

func source(t *testing.T) *sourceCode {
	t.Helper()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	s := &sourceCode{words: map[string]string{}, listed: map[*ast.CompositeLit]bool{}}
	files := token.NewFileSet()
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(files, name, nil, 0)
			require.NoError(t, err)
			s.files = append(s.files, f)
		}
	}
	s.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					s.words[n.Names[i].Name], _ = strconv.Unquote(lit.Value)
				}
			}
		case *ast.CompositeLit:
			if list, ok := n.Type.(*ast.ArrayType); ok && isIdent(list.Elt, "Finding") {
				for _, e := range n.Elts {
					s.listed[e.(*ast.CompositeLit)] = true
				}
			}
		}
		return true
	})
	return s
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// finding returns what one literal can be. A severity that is no constant is that of a purpose,
// which inSource has by itself.
func (s *sourceCode) finding(t *testing.T, lit *ast.CompositeLit) (all []string) {
	t.Helper()
	require.Len(t, lit.Elts, 5, "a Finding is written with all its fields")
	severity, ok := lit.Elts[0].(*ast.Ident)
	if !ok || severity.Name == "OK" {
		return nil
	}
	check, ok := s.words[lit.Elts[1].(*ast.Ident).Name]
	require.True(t, ok)
	for _, says := range s.texts(t, lit.Elts[2]) {
		all = append(all, check+" | "+strings.ToLower(severity.Name)+" | "+says)
	}
	return all
}

var verb = regexp.MustCompile(`%[.\d]*[a-z]`)

// texts returns what an expression can be: a variable what it is set to, a parameter what callers
// give it.
func (s *sourceCode) texts(t *testing.T, e ast.Expr) []string {
	t.Helper()
	id, ok := e.(*ast.Ident)
	if !ok {
		return []string{s.text(e)}
	}
	if word, ok := s.words[id.Name]; ok {
		return []string{word}
	}
	var all []string
	name := s.function.Name.Name
	position := slices.IndexFunc(s.function.Type.Params.List, func(f *ast.Field) bool { return f.Names[0].Name == id.Name })
	s.inspect(func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && position >= 0 {
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == name {
				all = append(all, s.text(call.Args[position]))
			}
		}
		return true
	})
	ast.Inspect(s.function, func(n ast.Node) bool {
		if set, ok := n.(*ast.AssignStmt); ok {
			for i, to := range set.Lhs {
				if isIdent(to, id.Name) {
					all = append(all, s.text(set.Rhs[i]))
				}
			}
		}
		return true
	})
	require.NotEmpty(t, all, "what is %s in %s?", id.Name, name)
	return all
}

// text returns an expression with … for each part that is no constant.
func (s *sourceCode) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return strings.ReplaceAll(s.text(e.X)+s.text(e.Y), "……", "…")
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
			return verb.ReplaceAllString(s.text(e.Args[0]), "…")
		}
	case *ast.Ident:
		if word, ok := s.words[e.Name]; ok {
			return word
		}
	}
	return "…"
}
