package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// width of all pictures, in pixels at full size; the height follows from the contents. It is little
// more than a phone shows, because pictures shrink to the screen with all their text: whoever reads
// a wide one on a phone reads nothing.
const width = 520

// margin is what is left free at each side.
const margin = 8.0

// lineHeight is that of the pictures' text.
const lineHeight = 19.0

// A canvas collects the elements of one SVG. All texts pass through escape, all coordinates through
// px: nothing in a run can break the markup.
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

// An xy is a place in a picture, a box a rectangle, in pixels from the left and from above.
type (
	xy  struct{ x, y float64 }
	box struct{ x, y, w, h float64 }
)

func (c *canvas) rect(b box, class, tooltip string) {
	c.element("rect", fmt.Sprintf(`x="%s" y="%s" width="%s" height="%s"`, px(b.x), px(b.y), px(max(b.w, 0)), px(max(b.h, 0))), class, tooltip)
}

func (c *canvas) line(from, to xy, class string) {
	c.element("line", fmt.Sprintf(`x1="%s" y1="%s" x2="%s" y2="%s"`, px(from.x), px(from.y), px(to.x), px(to.y)), class, "")
}

func (c *canvas) circle(at xy, r float64, class, tooltip string) {
	c.element("circle", fmt.Sprintf(`cx="%s" cy="%s" r="%s"`, px(at.x), px(at.y), px(r)), class, tooltip)
}

// path draws a path whose data are made of px alone.
func (c *canvas) path(d, class, tooltip string) {
	if d != "" {
		c.element("path", fmt.Sprintf(`d="%s"`, d), class, tooltip)
	}
}

// text writes a line of text; its class says where x is in it: begin (default), "middle" or "end".
func (c *canvas) text(x, y float64, class, s string) {
	fmt.Fprintf(&c.body, `<text x="%s" y="%s" class="%s">%s</text>`+"\n", px(x), px(y), escape(class), escape(s))
}

// label writes as much of a text from at on as fits in room pixels. A text that does not fit has a
// tooltip with all of it.
func (c *canvas) label(at xy, room float64, class, s string) {
	short := shorten(s, room)
	c.body.WriteString("<g>")
	if short != s {
		fmt.Fprintf(&c.body, "<title>%s</title>", escape(s))
	}
	c.text(at.x, at.y, class, short)
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

// svg closes the drawing, for a page that has the style sheet and says the title and the caption
// beside it.
func (c *canvas) svg(title, caption string) []byte { return c.document(title, caption, 0, "") }

// file closes the drawing as a file of its own, which brings all of that along.
func (c *canvas) file(title, caption string) []byte {
	var head canvas
	head.text(margin, 26, "bold title", shorten(title, 0.8*(width-2*margin)))
	rows := wrap(caption, width-2*margin, 8)
	for i, row := range rows {
		head.text(margin, 50+lineHeight*float64(i), "muted", row)
	}
	before := 44 + lineHeight*float64(len(rows))
	return c.document(title, caption, before,
		fmt.Sprintf("<title>%s</title>\n<desc>%s</desc>\n<style>%s</style>\n"+
			`<rect width="%d" height="%s" class="paper"/>`+"\n%s", escape(title), escape(caption), css, width, px(c.height+before), head.body.String()))
}

func (c *canvas) document(title, caption string, before float64, head string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 %d %s" width="%d" height="%s" role="img" aria-label="%s">`+"\n",
		width, px(c.height+before), width, px(c.height+before), escape(title+": "+caption))
	fmt.Fprintf(&b, `%s<g transform="translate(0 %s)">`+"\n%s</g>\n</svg>\n", head, px(before), c.body.Bytes())
	return b.Bytes()
}

// An end is the end of a line, and its name.
type end struct {
	x, y float64
	name string
}

// ends writes the names of lines beside a panel, moved apart where lines end close to each other,
// each with a leader to its line.
func (c *canvas) ends(all []end, x, top, bottom float64) {
	at := make([]float64, len(all))
	for i, e := range all {
		at[i] = e.y
	}
	for i, y := range dodge(at, lineHeight-2, top, bottom) {
		var t trace
		t.to(all[i].x+3, all[i].y)
		t.to(x-3, y)
		c.path(t.d.String(), "leader", "")
		c.text(x, y+5, "muted small", all[i].name)
	}
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
		case r > 0x2e80: // ideographs
			w += 15
		default:
			w += 9
		}
	}
	return w
}

// wrap breaks s at spaces into at most lines lines of w pixels; the last ends in an ellipsis if
// there is more.
func wrap(s string, w float64, lines int) []string {
	var rows []string
	for _, word := range strings.Fields(s) {
		if n := len(rows); n > 0 && textWidth(rows[n-1]+" "+word) <= w {
			rows[n-1] += " " + word
		} else {
			rows = append(rows, word)
		}
	}
	if len(rows) > lines {
		rows[lines-1] = strings.Join(rows[lines-1:], " ") // too long, and so shortened below
		rows = rows[:lines]
	}
	for i := range rows {
		rows[i] = shorten(rows[i], w)
	}
	return rows
}

func shorten(s string, w float64) string {
	if textWidth(s) <= w {
		return s
	}
	runes := []rune(s)
	for len(runes) > 1 && textWidth(string(runes)+"…") > w {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimRight(string(runes), " ") + "…"
}

// dodge moves positions apart until they are gap from each other, as little as that takes, and
// keeps them between lo and hi while there is room.
func dodge(at []float64, gap, lo, hi float64) []float64 {
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case at[i] < at[j]:
			return -1
		case at[i] > at[j]:
			return 1
		}
		return 0
	})
	// Neighbours that are too close become a block around the middle of what they want; blocks that
	// then meet become one.
	type block struct{ n, middle float64 }
	var blocks []block
	for _, i := range order {
		blocks = append(blocks, block{n: 1, middle: min(max(at[i], lo), hi)})
		for len(blocks) > 1 {
			a, b := blocks[len(blocks)-2], blocks[len(blocks)-1]
			if b.middle-a.middle >= gap*(a.n+b.n)/2 {
				break
			}
			joined := block{n: a.n + b.n, middle: (a.middle*a.n + b.middle*b.n) / (a.n + b.n)}
			half := gap * (joined.n - 1) / 2
			joined.middle = max(min(joined.middle, hi-half), lo+half)
			blocks = append(blocks[:len(blocks)-2], joined)
		}
	}
	moved := make([]float64, len(at))
	next := 0
	for _, b := range blocks {
		for k := range int(b.n) {
			moved[order[next]] = b.middle + gap*(float64(k)-(b.n-1)/2)
			next++
		}
	}
	return moved
}
