package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// width of all pictures, in pixels at full size; the height follows from what is
// in them.
const width = 960

// A canvas collects the elements of one SVG. All texts pass through escape, all
// coordinates through px: nothing in a run can break the markup.
type canvas struct {
	body   bytes.Buffer
	height float64
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// px writes a coordinate with a tenth of a pixel.
func px(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		x = 0
	}
	return strconv.FormatFloat(math.Round(10*x)/10+0, 'f', -1, 64) // +0: no "-0"
}

// element writes one element, with the tooltip as its title if it has one.
func (c *canvas) element(name, attributes, class, tooltip string) {
	fmt.Fprintf(&c.body, `<%s %s class="%s"`, name, attributes, escape(class))
	if tooltip == "" {
		c.body.WriteString("/>\n")
		return
	}
	fmt.Fprintf(&c.body, "><title>%s</title></%s>\n", escape(tooltip), name)
}

func (c *canvas) rect(x, y, w, h float64, class, tooltip string) {
	c.element("rect", fmt.Sprintf(`x="%s" y="%s" width="%s" height="%s"`, px(x), px(y), px(max(w, 0)), px(max(h, 0))), class, tooltip)
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	c.element("line", fmt.Sprintf(`x1="%s" y1="%s" x2="%s" y2="%s"`, px(x1), px(y1), px(x2), px(y2)), class, "")
}

func (c *canvas) circle(x, y, r float64, class, tooltip string) {
	c.element("circle", fmt.Sprintf(`cx="%s" cy="%s" r="%s"`, px(x), px(y), px(r)), class, tooltip)
}

// path draws a path whose data are made of px alone.
func (c *canvas) path(d, class, tooltip string) {
	if d != "" {
		c.element("path", fmt.Sprintf(`d="%s"`, d), class, tooltip)
	}
}

// text writes a line of text; its class says where x is in it: begin (default),
// "middle" or "end".
func (c *canvas) text(x, y float64, class, s string) {
	fmt.Fprintf(&c.body, `<text x="%s" y="%s" class="%s">%s</text>`+"\n", px(x), px(y), escape(class), escape(s))
}

// upright writes text from below to above, its middle at x, y.
func (c *canvas) upright(x, y float64, class, s string) {
	fmt.Fprintf(&c.body, `<text transform="translate(%s %s) rotate(-90)" class="%s">%s</text>`+"\n", px(x), px(y), escape("middle "+class), escape(s))
}

// label writes text in at most lines lines of w pixels around the middle y; what
// does not fit is in a tooltip.
func (c *canvas) label(x, y, w float64, lines int, class, s string) {
	rows := wrap(s, w, lines)
	c.body.WriteString("<g>")
	if strings.Join(rows, " ") != strings.Join(strings.Fields(s), " ") {
		fmt.Fprintf(&c.body, "<title>%s</title>", escape(s))
	}
	for i, row := range rows {
		c.text(x, y+4+14*(float64(i)-float64(len(rows)-1)/2), class, row)
	}
	c.body.WriteString("</g>\n")
}

// A trace is a line through points, with gaps.
type trace struct {
	d    strings.Builder
	down bool
}

func (t *trace) to(x, y float64) {
	if t.down {
		fmt.Fprintf(&t.d, "L%s %s", px(x), px(y))
	} else {
		fmt.Fprintf(&t.d, "M%s %s", px(x), px(y))
	}
	t.down = true
}

func (t *trace) lift() { t.down = false }

// svg closes the drawing, for a page that has the style sheet and says the title
// and the caption beside it.
func (c *canvas) svg(title, caption string) []byte { return c.document(title, caption, 0, "") }

// file closes the drawing as a file of its own, which brings all of that along.
func (c *canvas) file(title, caption string) []byte {
	var head canvas
	rows := wrap(caption, width-16, 6)
	head.text(8, 24, "bold title", title)
	for i, row := range rows {
		head.text(8, 44+16*float64(i), "muted", row)
	}
	before := 44 + 16*float64(len(rows))
	return c.document(title, caption, before, fmt.Sprintf("<title>%s</title>\n<desc>%s</desc>\n<style>%s</style>\n"+
		`<rect width="%d" height="%s" class="paper"/>`+"\n%s", escape(title), escape(caption), css, width, px(c.height+before), head.body.String()))
}

func (c *canvas) document(title, caption string, before float64, head string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 %d %s" width="%d" height="%s" role="img" aria-label="%s">`+"\n",
		width, px(c.height+before), width, px(c.height+before), escape(title+": "+caption))
	fmt.Fprintf(&b, `%s<g transform="translate(0 %s)">`+"\n%s</g>\n</svg>\n", head, px(before), c.body.Bytes())
	return b.Bytes()
}
