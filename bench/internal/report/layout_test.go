package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A placed text is a text of a picture, its size in the style sheet, and the box that it takes.
type placed struct {
	text string
	size float64
	box
}

// meets reports whether the boxes share more than a pixel.
func (p placed) meets(q placed) bool {
	return p.x+1 < q.x+q.w && q.x+1 < p.x+p.w && p.y+1 < q.y+q.h && q.y+1 < p.y+p.h
}

// fontSize is that of a class, or of all texts, as picture.css says it.
func fontSize(t *testing.T, classes []string) float64 {
	t.Helper()
	size := 0.0
	for _, rule := range regexp.MustCompile(`\.picture (text|\.\w+)\{font(?:-size)?:([\d.]+)px`).FindAllStringSubmatch(css, -1) {
		if name := strings.TrimPrefix(rule[1], "."); name == "text" || slices.Contains(classes, name) {
			var err error
			size, err = strconv.ParseFloat(rule[2], 64)
			require.NoError(t, err)
		}
	}
	require.Positive(t, size, "picture.css has no size of texts")
	return size
}

// lay reads a picture as a browser does: its size, and its texts where they stand.
func lay(t *testing.T, svg []byte) (page box, texts []placed) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	var down []float64 // by how much each open group is moved
	number := func(e xml.StartElement, name string) float64 {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				x, err := strconv.ParseFloat(a.Value, 64)
				require.NoError(t, err)
				return x
			}
		}
		return 0
	}
	class := func(e xml.StartElement) []string {
		for _, a := range e.Attr {
			if a.Name.Local == "class" {
				return strings.Fields(a.Value)
			}
		}
		return nil
	}
	for {
		token, err := d.Token()
		if token == nil {
			return page, texts
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			switch e.Name.Local {
			case "svg":
				page = box{w: number(e, "width"), h: number(e, "height")}
			case "g":
				moved := 0.0
				for _, a := range e.Attr {
					require.Equal(t, "transform", a.Name.Local)
					_, err := fmt.Sscanf(a.Value, "translate(0 %g)", &moved)
					require.NoError(t, err, "%s: texts must lie, as they are read on phones", a.Value)
				}
				down = append(down, moved)
			case "text":
				var s string
				x, y, classes := number(e, "x"), number(e, "y"), class(e)
				require.NoError(t, d.DecodeElement(&s, &e))
				for _, moved := range down {
					y += moved
				}
				size := fontSize(t, classes)
				w := textWidth(s) * size / 15
				switch {
				case slices.Contains(classes, "middle"):
					x -= w / 2
				case slices.Contains(classes, "end"):
					x -= w
				}
				texts = append(texts, placed{s, size, box{x, y - 0.75*size, w, size}})
			}
		case xml.EndElement:
			if e.Name.Local == "g" {
				down = down[:len(down)-1]
			}
		}
	}
}

// Labels of the figures in two panels, and names of lines, once stood on each other. A picture is
// drawn once and shrinks as a whole, so that one look at its own size is enough for all screens.
func TestNoTextsOverlapAndNoneLeavesThePicture(t *testing.T) {
	t.Parallel()
	for name, fixture := range fixtures {
		for _, p := range SVGs(fixture()) {
			page, texts := lay(t, p.SVG)
			require.NotEmpty(t, texts)
			for i, a := range texts {
				assert.True(t, a.x >= 0 && a.x+a.w <= page.w && a.y >= 0 && a.y+a.h <= page.h,
					"%s, %s: %q leaves the picture: %v", name, p.Name, a.text, a.box)
				for _, b := range texts[i+1:] {
					assert.False(t, a.meets(b), "%s, %s: %q %v and %q %v overlap", name, p.Name, a.text, a.box, b.text, b.box)
				}
			}
		}
	}
}

// On a phone of 420 pixels the page leaves a picture 380.
func TestTextsCanBeReadOnAPhoneAndAreNotHugeOnADesk(t *testing.T) {
	t.Parallel()
	side := regexp.MustCompile(`body\{[^}]*padding:\d+px (\d+)px`).FindStringSubmatch(pageCSS)
	most := regexp.MustCompile(`svg\.picture\{[^}]*max-width:(\d+)px`).FindStringSubmatch(pageCSS)
	require.NotNil(t, side)
	require.NotNil(t, most)
	padding, _ := strconv.ParseFloat(side[1], 64)
	widest, _ := strconv.ParseFloat(most[1], 64)
	for name, fixture := range fixtures {
		for _, p := range SVGs(fixture()) {
			page, texts := lay(t, p.SVG)
			for _, screen := range []float64{420, 1200} {
				shrunk := math.Min(screen-2*padding, widest) / page.w
				for _, text := range texts {
					assert.GreaterOrEqual(t, text.size*shrunk, 10.0, "%s, %s: %q on %v pixels", name, p.Name, text.text, screen)
					assert.LessOrEqual(t, text.size*shrunk, 24.0, "%s, %s: %q on %v pixels", name, p.Name, text.text, screen)
				}
			}
		}
	}
}

func TestEachQuantileHasAMarkOfItsOwn(t *testing.T) {
	t.Parallel()
	shapes := map[string]string{}
	for _, m := range marks {
		var d drawing
		m.draw(&d, xy{50, 50}, 0, "")
		shape := regexp.MustCompile(`^<(\w+) .*class="(\w+)`).FindStringSubmatch(d.body.String())[0]
		shape = regexp.MustCompile(`[\d.-]+`).ReplaceAllString(shape, "") // size alone is no difference
		assert.Empty(t, shapes[shape], "%s looks as %s does", m.name, shapes[shape])
		shapes[shape] = m.name
	}
	v := look(fixtures["steady"]())
	body := v.latency(v.sums).body.String()
	for _, m := range marks {
		assert.Contains(t, body, ">"+m.name+"<", "in the key")
		assert.Contains(t, body, "redquorum: "+m.name+" ", "in the rows")
	}
}

// The name of a vertical axis is looked for above it: at the bottom right nobody finds it.
func TestVerticalAxesAreNamedAtTheirTopLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		picture string
		axes    map[string]string // a label that begins each scale's range, by the name of its axis
	}{
		{"-faults.svg", map[string]string{"time to acquire": "1 s"}},
		{"-faults-in-detail.svg", map[string]string{"time to acquire": "1 s", "cycles/s": "10 k"}},
		{"-scale.svg", map[string]string{"cycles/s": "10 k", "time to acquire, p99": "100 ms"}},
	} {
		seen := false
		for _, fixture := range []string{"pause", "sweep"} {
			for _, p := range SVGs(fixtures[fixture]()) {
				if !strings.HasSuffix(p.Name, c.picture) {
					continue
				}
				seen = true
				_, texts := lay(t, p.SVG)
				for axis, label := range c.axes {
					name := slices.IndexFunc(texts, func(p placed) bool { return p.text == axis })
					require.GreaterOrEqual(t, name, 0, "%s: %s", p.Name, axis)
					top := slices.IndexFunc(texts[name:], func(p placed) bool { return p.text == label })
					require.GreaterOrEqual(t, top, 0, "%s: %s", p.Name, label)
					assert.Less(t, texts[name].y, texts[name+top].y, "%s: %s is above %s", p.Name, axis, label)
					assert.LessOrEqual(t, texts[name].x, texts[name+top].x, "%s: %s begins left of %s", p.Name, axis, label)
				}
			}
		}
		assert.True(t, seen, c.picture)
	}
}
