// Package report shows a record.Run to people: as text for a terminal, as a table in Markdown, and
// as SVG pictures that need nothing else.
//
// table.go has the one table of a run, which Text and Markdown share. pictures.go has the pictures:
// which library is faster, how long its callers wait, how both change over a sweep, and how long
// there is no lock while servers are broken. All have a lane for each subject or point, above an
// axis that the lanes share. They stand on a thin layer of scales (scale.go) and escaped SVG
// (canvas.go). A chart library was rejected: with one, shaded faults on a time axis, and colours
// that follow the reader's choice of light or dark, took more code than these scales.
//
// The rules of the pictures: each says by itself what was measured, on what, and what is better; bars
// start at zero; an axis that is logarithmic says so; figures are medians over the rounds, with the
// range of the rounds; and a subject has the same colour everywhere. Problems that make figures
// worthless (overlapping holders, nodes that only pretend to be servers) stand at
// the top of the text.
package report
