package report

import "github.com/redquorum/redquorum/bench/internal/record"

const rowHeight = 36

// rows is the layout with one row a subject: titles at the left, a plot, and
// room for figures at the right.
type rows struct {
	*drawing
	view        view
	sums        []record.Summary
	top         float64
	left, right float64 // of the plot
}

// newRows makes room for rows below top and leaves margin pixels at the right.
func (v view) newRows(d *drawing, sums []record.Summary, top, margin float64) rows {
	r := rows{drawing: d, view: v, sums: sums, top: top, right: width - margin}
	for i, s := range sums {
		w := textWidth(title(s.Subject))
		r.left = max(r.left, min(w, 210)+24)
		r.label(8, r.middle(i), 212, 2, "", title(s.Subject))
	}
	r.left = max(r.left, 110)
	return r
}

func (r rows) middle(i int) float64 { return r.top + rowHeight*(float64(i)+0.5) }

func (r rows) bottom() float64 { return r.top + rowHeight*float64(len(r.sums)) }

// axis draws the scale below the rows and its grid behind them; it is drawn before
// the data.
func (r rows) axis(s scale, name string) {
	r.grid(s, r.top, r.bottom())
	r.line(r.left, r.bottom(), r.right, r.bottom(), "axis")
	for _, t := range s.ticks {
		if t.label != "" {
			r.text(s.at(t.value), r.bottom()+16, "middle muted small", t.label)
		}
	}
	r.text((r.left+r.right)/2, r.bottom()+34, "middle muted", name)
	r.height = r.bottom() + 44
}

// grid draws the ticks of a horizontal scale as vertical lines.
func (c *canvas) grid(s scale, top, bottom float64) {
	for _, t := range s.ticks {
		class := "grid"
		if t.label == "" {
			class = "minor"
		}
		c.line(s.at(t.value), top, s.at(t.value), bottom, class)
	}
}

// ladder draws a vertical scale: its grid, and its labels at the left.
func (c *canvas) ladder(s scale, left, right float64) {
	for _, t := range s.ticks {
		class := "grid"
		if t.label == "" {
			class = "minor"
		}
		c.line(left, s.at(t.value), right, s.at(t.value), class)
		if t.label != "" {
			c.text(left-6, s.at(t.value)+4, "end muted small", t.label)
		}
	}
}

// whisker draws the range of the rounds.
func (c *canvas) whisker(from, to, y float64) {
	if to-from < 1 {
		return
	}
	c.line(from, y, to, y, "whisker")
	c.line(from, y-4, from, y+4, "whisker")
	c.line(to, y-4, to, y+4, "whisker")
}
