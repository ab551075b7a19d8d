// Package report shows a record.Run to people and machines: as text for a
// terminal, as JSON, as lines for benchstat, as SVG pictures, and as one HTML
// file that needs nothing else.
//
// One run, one view of it: table.go makes the tables that Text and HTML share,
// pictures.go chooses the pictures that SVGs and HTML share. Each picture is a
// file of its own over a thin layer of scales (scale.go, ticks.go) and escaped
// SVG (canvas.go). No chart library is used: with one, shaded fault intervals and
// node strips on the time axis that all subjects share took more code than these
// scales.
//
// What the pictures hold to: bars start at zero; an axis that is logarithmic says
// so; figures are medians over the rounds, with the smallest and the largest round
// beside them; a subject has the same colour everywhere; and what makes figures
// worthless (overlapping holders, keys left behind, nodes that only pretend to be
// servers) stands at the top.
package report
