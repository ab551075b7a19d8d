package report

// An end is where a line ends, and what it is called.
type end struct {
	x, y  float64
	class string // of its line; "": the panel has but one subject
	name  string
	note  string // a figure, in muted text
}

// ends writes the names of lines beside a panel, moved apart where lines end close
// to each other, each with a leader to its line.
func (c *canvas) ends(all []end, x, top, bottom float64) {
	at := make([]float64, len(all))
	for i, e := range all {
		at[i] = e.y
	}
	for i, y := range dodge(at, 15, top, bottom) {
		e := all[i]
		var t trace
		t.to(e.x+5, e.y)
		t.to(x-3, y)
		c.path(t.d.String(), "leader", "")
		if e.class == "" { // its colour is that of all the panel
			c.text(x, y+4, "muted small", e.name)
			continue
		}
		c.line(x, y, x+12, y, "line "+e.class)
		room := width - x - 20
		if e.note != "" {
			c.text(width-6, y+4, "end muted small", e.note)
			room -= textWidth(e.note) + 6
		}
		c.label(x+17, y, 1.08*room, 1, "small", e.name)
	}
}
