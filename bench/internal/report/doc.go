// Package report shows a record.Run to people and machines: as text for a terminal, as JSON, as
// lines for benchstat, as a table in Markdown, as SVG pictures, and as one HTML file that needs
// nothing else.
//
// All forms show one view of a run (view.go). table.go makes the tables that Text and HTML share,
// pictures.go chooses the pictures that SVGs and HTML share: which library is faster and how long
// its callers wait (pictures.go), how both change over a sweep (sweep.go), and how long there is no
// lock while nodes are broken (faults.go, panel.go). Other figures are in the tables alone. The
// pictures stand on a thin layer of scales (scale.go) and escaped SVG (canvas.go). All are little
// wider than a phone, where they are read, too; layout_test.go lays them out. A chart library
// was rejected: with one, shaded fault intervals and node strips on the time axis that all subjects
// share took more code than these scales.
//
// The rules of the pictures: bars start at zero; an axis that is logarithmic says so; figures are
// medians over the rounds, with the smallest and the largest round beside them; a subject has the
// same colour everywhere; and problems that make figures worthless (overlapping holders, keys left
// behind, nodes that only pretend to be servers) stand at the top.
package report
