package report

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"fmt"
	"strings"
)

// width of all pictures, in pixels; the height follows from the contents. Pictures have no size of
// their own: they fill the page's column, or a phone's screen, with all their text.
const width = 720

// margin is what is left free at each side, and lineHeight that of the pictures' text.
const (
	margin     = 8.0
	lineHeight = 19.0
)

// css colours all pictures, for light and dark.
//
//go:embed picture.css
var css string

// A drawing is a picture on its way to an SVG. All texts pass through escape: nothing in a run can
// break the markup.
type drawing struct {
	name, title, caption string
	source               string // below it: the load and the machine, in small print
	body                 bytes.Buffer
	height               float64
}

// An xy is a place in a picture, a box a rectangle, in pixels from the left and from above.
type (
	xy  struct{ x, y float64 }
	box struct{ x, y, w, h float64 }
)

func (d *drawing) rect(b box, class string) {
	fmt.Fprintf(&d.body, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n", b.x, b.y, max(b.w, 0), b.h, class)
}

func (d *drawing) line(from, to xy, class string) {
	fmt.Fprintf(&d.body, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", from.x, from.y, to.x, to.y, class)
}

func (d *drawing) circle(at xy, r float64, class string) {
	fmt.Fprintf(&d.body, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"/>\n", at.x, at.y, r, class)
}

// text writes a line of text; its class says where x is in it: begin (default), "middle" or "end".
func (d *drawing) text(at xy, class, s string) {
	fmt.Fprintf(&d.body, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", at.x, at.y, class, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// A trace is a line through points, with gaps.
type trace struct {
	path strings.Builder
	down bool
}

func (t *trace) to(at xy) {
	command := map[bool]string{true: "L", false: "M"}[t.down]
	fmt.Fprintf(&t.path, "%s%.1f %.1f", command, at.x, at.y)
	t.down = true
}

func (t *trace) lift() { t.down = false }

func (d *drawing) trace(t *trace, class string) {
	if t.path.Len() > 0 {
		fmt.Fprintf(&d.body, "<path d=\"%s\" class=\"%s\"/>\n", t.path.String(), class)
	}
}

// svg closes the drawing, between its title and caption and its source.
func (d *drawing) svg() []byte {
	var around drawing
	around.text(xy{margin, 26}, "bold title", d.title)
	top := around.paragraph(50, "muted", d.caption) - 6
	height := around.paragraph(top+d.height+14, "muted small", d.source) - 8
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 %d %.0f" role="img" aria-label="%s">`+"\n",
		width, height, escape(d.title+". "+d.caption))
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>%s</desc>\n<style>%s</style>\n", escape(d.title), escape(d.caption), css)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%.0f\" class=\"paper\"/>\n%s", width, height, around.body.Bytes())
	fmt.Fprintf(&b, "<g transform=\"translate(0 %.0f)\">\n%s</g>\n</svg>\n", top, d.body.Bytes())
	return b.Bytes()
}

// paragraph writes lines of text from y on, and returns where the next one would be.
func (d *drawing) paragraph(y float64, class, s string) float64 {
	for _, row := range wrap(s, width-2*margin) {
		d.text(xy{margin, y}, class, row)
		y += lineHeight
	}
	return y
}

// textWidth estimates how wide a line of the pictures' 15-pixel text is. The reader's font is not
// known: the widths are those of a wide one.
func textWidth(s string) float64 {
	var w float64
	for _, r := range s {
		switch {
		case strings.ContainsRune("iljtf.,:;'|!()[] ·", r):
			w += 5.6
		case strings.ContainsRune("mwMW@%—…", r):
			w += 13.5
		case r >= 'A' && r <= 'Z':
			w += 10.5
		default:
			w += 9
		}
	}
	return w
}

// wrap breaks s at spaces into lines of w pixels.
func wrap(s string, w float64) []string {
	var rows []string
	for _, word := range strings.Fields(s) {
		if n := len(rows); n > 0 && textWidth(rows[n-1]+" "+word) <= w {
			rows[n-1] += " " + word
		} else {
			rows = append(rows, word)
		}
	}
	return rows
}
