package report

import (
	_ "embed"
	"slices"
	"strings"
	"unicode"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Picture is one drawing as a file of its own.
type Picture struct {
	Name    string // of the file
	Title   string
	Caption string // what is seen, in a sentence or two
	SVG     []byte
}

// css colours all pictures, for light and dark.
//
//go:embed picture.css
var css string

// SVGs draws what the run has to show: a picture of what it did not measure is
// left out.
func SVGs(run record.Run) []Picture {
	var pictures []Picture
	for _, d := range look(run).drawings() {
		pictures = append(pictures, Picture{
			Name: slug(run.Scenario+"-"+d.name) + ".svg", Title: d.title, Caption: d.caption,
			SVG: d.file(d.title, d.caption),
		})
	}
	return pictures
}

// A drawing is a picture that is not yet bound to a file or a page.
type drawing struct {
	name, title, caption string
	canvas
}

func (v view) drawings() []*drawing {
	var all []*drawing
	add := func(d *drawing) {
		if d != nil {
			all = append(all, d)
		}
	}
	for _, g := range v.troubled() {
		add(v.trouble(g))
	}
	if v.sweep() {
		for _, c := range curves {
			add(v.curve(c))
		}
	} else {
		add(v.throughput(v.sums))
		add(v.latency(v.sums))
		add(v.distribution(v.sums))
		add(v.costBars(v.sums))
		add(v.heldBars(v.sums))
	}
	for _, point := range v.points {
		add(v.fairness(point))
	}
	return all
}

// named and titled tell pictures of the points of a sweep apart.
func (v view) named(name, point string) string {
	if !v.sweep() {
		return name
	}
	return name + "-" + point
}

func (v view) titled(title, point string) string {
	if !v.sweep() || point == "" {
		return title
	}
	return title + ", " + point
}

// slug makes a name of a file.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '-'
	}, s)
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '-' }), "-")
}

// cycling are the summaries of subjects that ran cycles rather than held locks.
func cycling(sums []record.Summary) []record.Summary {
	return slices.DeleteFunc(slices.Clone(sums), func(s record.Summary) bool { return s.Held != nil })
}

// acquiring are those that acquired anything at all.
func acquiring(sums []record.Summary) []record.Summary {
	return slices.DeleteFunc(cycling(sums), func(s record.Summary) bool { return s.Acquired.Count() == 0 })
}

// rounds says of how many rounds figures are medians.
func rounds(sums []record.Summary) string {
	most := 0
	for _, s := range sums {
		most = max(most, s.Rounds)
	}
	if most < 2 {
		return "one round only"
	}
	return "medians of " + plural(most, "round") + ", with the range of the rounds"
}
