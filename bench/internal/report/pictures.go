package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/redquorum/redquorum/bench/internal/record"
)

const (
	width  = 720 * vg.Inch / 72
	margin = 10
	lane   = 38   // height for a subject
	slack  = 1.15 // room for fonts that are wider than Arial
)

var (
	ink   = color.RGBA{0x1c, 0x23, 0x29, 0xff}
	muted = color.RGBA{0x59, 0x64, 0x6d, 0xff}
	faint = color.RGBA{0xe0, 0xe4, 0xe8, 0xff}
	shade = color.RGBA{0xee, 0xea, 0xdc, 0xff} // of a fault

	// colours of subjects are distinguishable for colour-blind readers.
	colours = []color.Color{
		color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x93, 0x6b, 0xff}, color.RGBA{0xb8, 0x57, 0x8f, 0xff},
		color.RGBA{0xb9, 0x82, 0x00, 0xff}, color.RGBA{0x3b, 0x97, 0xcf, 0xff}, color.RGBA{0x6b, 0x6f, 0x75, 0xff}, color.RGBA{0x4b, 0x3b, 0x9b, 0xff},
	}
)

// dark is for readers with a dark page: it exchanges light and dark, and keeps the hues.
const dark = `<style>@media (prefers-color-scheme:dark){svg>g{filter:invert(.92) hue-rotate(180deg)}}</style>`

// SVGs draws the pictures of a run by the names of their files.
func SVGs(run record.Run) map[string][]byte {
	pictures := map[string][]byte{}
	sums := slices.DeleteFunc(run.Summaries(), func(s record.Summary) bool { return s.Acquire(1).Max == 0 }) // no acquisition was timed
	if len(sums) == 0 {
		return pictures
	}
	about := run.About + " One round."
	if n := len(sums[0].Trials); n > 1 {
		about = fmt.Sprintf("%s Medians of %d rounds; grey: their range.", run.About, n)
	}
	draw := func(name, title, caption string, lanes int, plots ...*plot.Plot) {
		pictures[run.Scenario+"-"+name+".svg"] = picture(run, title, caption, vg.Length(lanes*lane+30), plots)
	}
	if len(sums) > 1 && sums[0].Ratio > 0 {
		draw("throughput", "Locks acquired and released a second: more is better", about, len(sums), throughput(run, sums))
	}
	draw("latency", "Time to get a lock: less is better", about+" Dot: p50, line: p99, ring: maximum of all rounds.", len(sums), latency(run, sums))
	if sums[0].Trials[0].Fault != nil {
		caption := fmt.Sprintf("p99 of each 100 ms on a logarithmic axis. A gap: no lock was acquired. Shaded: %s.", sums[0].Trials[0].Fault.What)
		draw("faults", "Time to get a lock while servers fail: less is better", run.About+" "+caption, 2*len(sums), throughFault(run, sums)...)
	}
	return pictures
}

// style returns the style of a text. Text in an SVG is in the reader's own font; Liberation Sans is as
// wide as Arial.
func style(size vg.Length, colour color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	return text.Style{Color: colour, Font: f, Handler: plot.DefaultTextHandler}
}

// picture draws plots below each other. The title and a caption are above them, and the load and
// the machine below.
func picture(run record.Run, title, caption string, height vg.Length, plots []*plot.Plot) []byte {
	source := fmt.Sprintf("%s; %s; %s", load(run), machine(run), run.Date.UTC().Format("2 January 2006"))
	heading, small := style(18, ink), style(13, muted)
	heading.Font.Weight = 2
	above, below := wrap(small, caption), wrap(small, source)
	line := 1.4 * small.Font.Size
	top := 34 + vg.Length(len(above))*line
	bottom := vg.Length(len(below)) * line
	svg := vgsvg.New(width, top+height+bottom+2*margin)
	page := draw.New(svg)
	page.SetColor(color.White)
	page.Fill(page.Path())
	write := func(s text.Style, y vg.Length, lines ...string) {
		for i, l := range lines {
			page.FillText(s, vg.Point{X: margin, Y: y - vg.Length(i)*line}, l)
		}
	}
	write(heading, page.Max.Y-26, title)
	write(small, page.Max.Y-46, above...)
	write(small, bottom-4, below...)

	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: 4}
	for i, c := range plot.Align(rows, tiles, draw.Crop(page, margin, -margin, bottom+margin, -top)) {
		plots[i].Draw(c[0])
	}
	var b bytes.Buffer
	_, _ = svg.WriteTo(&b) // into memory
	described := fmt.Sprintf("%s<title>%s</title><desc>%s</desc>\n<g", dark, html.EscapeString(title), html.EscapeString(caption))
	out := strings.Replace(b.String(), "<g", described, 1)
	return []byte(strings.ReplaceAll(out, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,sans-serif"))
}

// wrap breaks a text into lines of the picture's width.
func wrap(s text.Style, words string) (lines []string) {
	for _, word := range strings.Fields(words) {
		if n := len(lines); n > 0 && slack*s.Width(lines[n-1]+" "+word) <= width-2*margin {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// columns pads lines to one width, with slack.
func columns(s text.Style, lines []string) []string {
	widest := vg.Length(0)
	for _, l := range lines {
		widest = max(widest, slack*s.Width(l))
	}
	for i := range lines {
		for s.Width(lines[i]) < widest {
			lines[i] += " "
		}
	}
	return lines
}

// newPlot returns a plot with a grid.
func newPlot(label string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.X.Label.TextStyle = label, align(style(13, muted), draw.XCenter, draw.YBottom)
	p.X.Tick.Label, p.Y.Tick.Label = align(style(12, muted), draw.XCenter, draw.YTop), align(style(13, ink), draw.XRight, draw.YCenter)
	p.X.Color, p.X.Tick.Color, p.X.Tick.Length = muted, muted, 4
	p.Y.Width, p.Y.Tick.Length, p.Y.Padding, p.X.Padding = 0, 0, 6, 0
	p.Add(&plotter.Grid{Vertical: draw.LineStyle{Color: faint, Width: 1}})
	return p
}

func align(s text.Style, x draw.XAlignment, y draw.YAlignment) text.Style {
	s.XAlign, s.YAlign = x, y
	return s
}

// lanes gives a plot a lane for each subject, with figures at the right. The first subject is at
// the top.
func lanes(p *plot.Plot, sums []record.Summary, figures func(record.Summary) string) (y func(i int) float64) {
	y = func(i int) float64 { return float64(len(sums) - 1 - i) }
	var titles, right []string
	for _, s := range sums {
		titles, right = append(titles, s.Subject.Title), append(right, figures(s))
	}
	ends := align(style(13, ink), draw.XLeft, draw.YCenter)
	labels := &plotter.Labels{Offset: vg.Point{X: 10}, Labels: columns(ends, right), TextStyle: slices.Repeat([]text.Style{ends}, len(sums))}
	ticks := make(plot.ConstantTicks, len(sums))
	for i, title := range columns(p.Y.Tick.Label, titles) {
		ticks[i] = plot.Tick{Value: y(i), Label: title}
		labels.XYs = append(labels.XYs, plotter.XY{X: p.X.Max, Y: y(i)})
	}
	p.Y.Tick.Marker, p.Y.Min, p.Y.Max = ticks, -0.5, float64(len(sums))-0.5
	p.Add(labels)
	return y
}

// colour returns the colour of a subject. It depends on the position of the subject in the run, so
// it is the same in all pictures.
func colour(run record.Run, s record.Summary) color.Color {
	return colours[slices.Index(run.Subjects, s.Subject)%len(colours)]
}

// across draws a horizontal line in a lane.
func across(from, to, y float64, width vg.Length, c color.Color) plot.Plotter {
	return &plotter.Line{XYs: plotter.XYs{{X: from, Y: y}, {X: to, Y: y}}, LineStyle: draw.LineStyle{Color: c, Width: width}}
}

func translucent(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	return color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 0x70}
}

// throughput shows cycles a second, compared with the first subject.
func throughput(run record.Run, sums []record.Summary) *plot.Plot {
	first := sums[0].PerSecond().Median
	label := "locks a second, " + sums[0].Subject.Title + " = 1"
	if rate := sums[0].Trials[0].Load.Rate; rate > 0 {
		label += fmt.Sprintf("; %s/s were begun by schedule", whole(int64(rate)))
	}
	p := newPlot(label)
	p.X.Min, p.X.Max = 0, 0
	for _, s := range sums {
		p.X.Max = max(p.X.Max, s.PerSecond().Max/first)
	}
	p.X.Tick.Marker = plot.TickerFunc(func(_, hi float64) (ticks []plot.Tick) {
		step := roundUp(hi / 5)
		for v := 0.0; v <= hi; v += step {
			ticks = append(ticks, plot.Tick{Value: v, Label: short(v)})
		}
		return ticks
	})
	y := lanes(p, sums, func(s record.Summary) string {
		return ratio(s.Ratio) + ", " + count(s.PerSecond().Median) + "/s"
	})
	for i, s := range sums {
		rate := s.PerSecond()
		p.Add(across(0, rate.Median/first, y(i), 18, colour(run, s)), across(rate.Min/first, rate.Max/first, y(i), 7, translucent(ink)))
	}
	return p
}

// latency shows the time to get a lock, from the median to the maximum.
func latency(run record.Run, sums []record.Summary) *plot.Plot {
	p := newPlot("time to get a lock (logarithmic)")
	for _, s := range sums {
		p.X.Min, p.X.Max = min(p.X.Min, s.Acquire(0.5).Min), max(p.X.Max, s.Acquire(1).Max)
	}
	logarithmic(&p.X, 8)
	y := lanes(p, sums, func(s record.Summary) string {
		return "p50 " + span(s.Acquire(0.5).Median) + ", p99 " + span(s.Acquire(0.99).Median)
	})
	for i, s := range sums {
		c := colour(run, s)
		p50, p99, longest := s.Acquire(0.5), s.Acquire(0.99), s.Acquire(1).Max // a median of maxima would hide a stall
		p.Add(across(p50.Median, longest, y(i), 2, translucent(c)), across(p50.Median, p99.Median, y(i), 7, translucent(c)))
		for _, q := range []record.Spread{p50, p99} {
			p.Add(across(q.Min, q.Max, y(i), 9, translucent(ink)))
		}
		for _, m := range []struct {
			at    float64
			size  vg.Length
			shape draw.GlyphDrawer
		}{{longest, 4, draw.RingGlyph{}}, {p99.Median, 8, bar{}}, {p50.Median, 6, draw.CircleGlyph{}}} {
			p.Add(&plotter.Scatter{XYs: plotter.XYs{{X: m.at, Y: y(i)}}, GlyphStyle: draw.GlyphStyle{Color: c, Radius: m.size, Shape: m.shape}})
		}
	}
	return p
}

// bar is a glyph: a thick upright line.
type bar struct{}

func (bar) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	c.StrokeLine2(draw.LineStyle{Color: s.Color, Width: 4}, at.X, at.Y-s.Radius, at.X, at.Y+s.Radius)
}

// throughFault shows the time to get a lock during the first round, with a plot for each subject.
// The line stays level, rises, or has a gap.
func throughFault(run record.Run, sums []record.Summary) (plots []*plot.Plot) {
	lo, hi := math.Inf(1), 0.0
	for _, s := range sums {
		if f := s.Trials[0].Fault; f != nil {
			for _, took := range f.Slices {
				if took > 0 {
					lo, hi = min(lo, float64(took)), max(hi, float64(took))
				}
			}
		}
	}
	for i, s := range sums {
		p := newPlot("")
		p.X.Min, p.X.Max = 0, s.Trials[0].Load.Duration.Seconds()
		p.Y.Min, p.Y.Max = lo, hi
		p.Y.Tick.Label = align(style(12, muted), draw.XRight, draw.YCenter)
		p.Title.Text, p.Title.TextStyle = s.Subject.Title, align(style(13, ink), draw.XCenter, draw.YTop)
		p.X.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
			ticks := plot.DefaultTicks{}.Ticks(lo, hi)
			for j := range ticks {
				if i < len(sums)-1 {
					ticks[j].Label = ""
				} else if ticks[j].Label != "" {
					ticks[j].Label += " s"
				}
			}
			return ticks
		})
		if i == len(sums)-1 {
			p.X.Label.Text = "time since the load began"
		}
		logarithmic(&p.Y, 3)
		if f := s.Trials[0].Fault; f != nil {
			p.Title.Text += ": no lock for " + span(float64(f.Without))
			from, to := f.From.Seconds(), f.To.Seconds()
			p.Add(&plotter.Polygon{XYs: []plotter.XYs{{{X: from, Y: p.Y.Min}, {X: from, Y: p.Y.Max}, {X: to, Y: p.Y.Max}, {X: to, Y: p.Y.Min}}}, Color: shade})
			for _, run := range runs(f) {
				p.Add(&plotter.Line{XYs: run, LineStyle: draw.LineStyle{Color: colours[i%len(colours)], Width: 1.8}})
			}
		}
		plots = append(plots, p)
	}
	return plots
}

// runs returns the lines between the gaps of a fault's slices.
func runs(f *record.Fault) (all []plotter.XYs) {
	var line plotter.XYs
	for i, took := range append(f.Slices, 0) {
		if took == 0 {
			if line != nil {
				all = append(all, line)
			}
			line = nil
			continue
		}
		at := float64(i) * record.SliceLength.Seconds()
		line = append(line, plotter.XY{X: at, Y: float64(took)}, plotter.XY{X: at + record.SliceLength.Seconds(), Y: float64(took)})
	}
	return all
}

// logarithmic makes an axis of nanoseconds logarithmic, from 1, 2 or 5 times a power of ten to
// another, with labels at some powers.
func logarithmic(a *plot.Axis, labels int) {
	a.Min, a.Max = 1/roundUp(1/a.Min), roundUp(1.001*a.Max)
	a.Scale = plot.LogScale{}
	every := max(1, int(math.Ceil(math.Log10(a.Max/a.Min)/float64(labels))))
	a.Tick.Marker = plot.TickerFunc(func(lo, hi float64) (ticks []plot.Tick) {
		for e := int(math.Log10(lo)); ; e++ {
			for _, m := range []float64{1, 2, 5} {
				tick := plot.Tick{Value: m * math.Pow10(e)}
				switch {
				case tick.Value > 1.001*hi:
					return ticks
				case m == 1 && e%every == 0, hi < 20*lo:
					tick.Label = spanShort(tick.Value)
				}
				ticks = append(ticks, tick)
			}
		}
	})
}

// roundUp returns 1, 2 or 5 times a power of ten.
func roundUp(x float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if x <= 1.0001*m*ten {
			return m * ten
		}
	}
	return 10 * ten
}
