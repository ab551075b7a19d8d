package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// throughFaults shows the time to acquire of all subjects in the first round, one line each. It is
// what a service sees of the faults: a line that stays where it was, that rises, or that has a gap
// because no lock could be had.
func (v view) throughFaults() *drawing {
	const height = 200.0
	var faults []record.Fault
	var values extent
	end := time.Duration(0)
	for _, s := range v.cycling() {
		t := s.Trials[0]
		if len(t.Faults) > len(faults) {
			faults = t.Faults
		}
		end = t.Load.Duration
		for _, h := range t.Slices {
			values.include(float64(h.At(0.99)))
		}
	}
	if len(faults) == 0 || values.to == 0 {
		return nil
	}
	d := &drawing{name: "faults", title: "Through the faults"}
	d.caption = fmt.Sprintf("Time to acquire, p99 of each %s. Lower is better, on a logarithmic axis; a gap: no lock was acquired. Shaded: nodes are broken.", spanShort(float64(record.SliceLength)))
	top := 10.0
	for _, s := range v.cycling() {
		note := ""
		if worst := longestWithout(s.Trials[0]); worst > 0 {
			note = "no lock for " + span(float64(worst))
		}
		top = v.keyLine(d, s.Subject, note, top)
	}
	x := linear(float64(end), extent{margin + 58, width - margin - 16}, func(ns float64) string { return short(ns/1e9) + " s" })
	top += 2
	shaded(d, x, faults, extent{top, top + lineHeight + 34 + height})
	d.text(xy{margin, top + lineHeight + 24}, "muted small", "time to acquire")
	top += lineHeight + 40
	bottom := top + height
	d.grid(x, extent{top, bottom})
	y := logarithmic(values, extent{bottom, top}, standing, spanShort)
	d.ladder(y, extent{x.from, x.to})
	d.line(xy{x.from, bottom}, xy{x.to, bottom}, "axis")
	for _, s := range slices.Backward(v.cycling()) { // the first, which the run is about, lies on top
		var line trace
		for i, h := range s.Trials[0].Slices {
			if h.Count() == 0 {
				line.lift()
				continue
			}
			from, at := float64(i)*float64(record.SliceLength), y.at(float64(h.At(0.99)))
			line.to(xy{x.at(from), at})
			line.to(xy{x.at(from + float64(record.SliceLength)), at})
		}
		d.trace(&line, "line "+v.stroke(s.Subject.Name))
	}
	for _, t := range x.ticks {
		d.text(xy{x.at(t.value), bottom + 18}, "middle muted small", t.label)
	}
	d.text(xy{(x.from + x.to) / 2, bottom + 40}, "middle muted", "since the load began")
	d.height = bottom + 50
	return d
}

// shaded marks when the faults were, each with its name above it where the one before leaves room.
func shaded(d *drawing, x scale, faults []record.Fault, y extent) {
	free := 0.0
	for _, f := range faults {
		from, to := x.at(float64(f.From)), x.at(float64(f.To))
		top := y.from + lineHeight + 2
		d.rect(box{from, top, max(to-from, 1), y.to - top}, "fault")
		d.line(xy{from, top}, xy{from, y.to}, "edge")
		d.line(xy{to, top}, xy{to, y.to}, "edge")
		if middle, half := (from+to)/2, textWidth(f.What)/2; middle-half >= free {
			d.text(xy{middle, y.from + 12}, "middle tag small", f.What)
			free = middle + half
		}
	}
}

// keyLine writes a line of the key of a drawing whose subjects are lines, and returns where the next
// one begins.
func (v view) keyLine(d *drawing, s record.Subject, note string, top float64) float64 {
	d.line(xy{margin, top + 7}, xy{margin + 20, top + 7}, "key "+v.stroke(s.Name))
	d.label(xy{margin + 28, top + 12}, width-2*margin-36-textWidth(note), s.Title)
	d.text(xy{width - margin, top + 12}, "end muted", note)
	return top + lineHeight + 1
}
