// Package report shows a record.Run to people: as text for a terminal, as a table in Markdown, and
// as SVG pictures that need nothing else.
//
// table.go has the one table of a run, which Text and Markdown share. The pictures show which
// library is faster and how long its callers wait (pictures.go), how both change over a sweep
// (sweep.go), and how long there is no lock while nodes are broken (faults.go). They stand on a thin
// layer of scales (scale.go) and escaped SVG (canvas.go). All are little wider than a phone, where
// they are read, too. A chart library was rejected: with one, shaded faults on a time axis, and
// colours that follow the reader's choice of light or dark, took more code than these scales.
//
// The rules of the pictures: bars start at zero; an axis that is logarithmic says so; figures are
// medians over the rounds, with the smallest and the largest round beside them; and a subject has
// the same colour everywhere. Problems that make figures worthless (overlapping holders, keys left
// behind, nodes that only pretend to be servers) stand at the top of the text.
package report
