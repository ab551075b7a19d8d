package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/redquorum/redquorum/bench/internal/record"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var page = template.Must(template.New("page").Parse(pageHTML))

// These types are the data of page.html.
type (
	sheet struct {
		Style                                template.CSS
		Scenario, About, Load, Machine, Date string
		Command, Warning                     string
		Problems, LeftOut                    []string
		Subjects                             []swatch
		Tables                               []grid
		Figures                              []figureHTML
		Errors                               []gridLine
	}
	swatch   struct{ Class, Title, Name, Note string }
	cell     struct{ Text, Class string }
	gridLine struct {
		Swatch swatch
		Cells  []cell
	}
	grid struct {
		Title, Legend string
		Columns       []cell
		Lines         []gridLine
	}
	figureHTML struct {
		ID, Title, Caption string
		SVG                template.HTML
	}
)

// HTML writes one page that needs neither network nor script: pictures and styles are in it. It
// follows the reader's choice of light or dark, and prints.
func HTML(w io.Writer, run record.Run) error {
	v := look(run)
	s := sheet{
		Style:    template.CSS(pageCSS + css), // both are files of this package
		Scenario: v.run.Scenario, About: v.run.About, Load: v.load(), Machine: v.machine(), Command: v.run.Command,
		Problems: v.problems(), LeftOut: v.run.LeftOut,
	}
	if !run.Date.IsZero() {
		s.Date = run.Date.UTC().Format("2 January 2006, 15:04 UTC")
	}
	if v.embedded() {
		s.Warning = embeddedWarning
	}
	for _, subject := range v.subjects {
		s.Subjects = append(s.Subjects, v.swatch(subject))
	}
	for _, t := range append(v.tables(), v.rounds()) {
		if len(t.rows) > 0 {
			s.Tables = append(s.Tables, v.grid(t))
		}
	}
	for _, d := range v.drawings() {
		// canvas escapes every text that it is given.
		s.Figures = append(s.Figures, figureHTML{slug(d.name), d.title, d.caption,
			template.HTML(d.svg(d.title, d.caption))})
	}
	for _, e := range v.frequentErrors() {
		s.Errors = append(s.Errors, gridLine{v.swatch(e.subject),
			[]cell{{whole(e.count), ""}, {e.message, "text"}}})
	}
	if err := page.Execute(w, s); err != nil {
		return fmt.Errorf("the HTML report: %w", err)
	}
	return nil
}

func (v view) swatch(s record.Subject) swatch {
	return swatch{v.fill(s.Name), title(s), s.Name, s.Note}
}

func (v view) grid(t table) grid {
	g := grid{Title: t.title, Legend: v.legend(t)}
	for _, c := range t.columns {
		class := ""
		if c.text {
			class = "text"
		}
		g.Columns = append(g.Columns, cell{c.head, class})
	}
	for _, r := range t.rows {
		l := gridLine{Swatch: v.swatch(r.subject)}
		for i, text := range r.cells {
			c := cell{text, g.Columns[i].Class}
			if r.bad != nil && r.bad[i] {
				c.Class += " bad"
			}
			l.Cells = append(l.Cells, c)
		}
		g.Lines = append(g.Lines, l)
	}
	return g
}
