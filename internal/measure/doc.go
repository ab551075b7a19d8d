// Package measure says what is counted of a Locker's events, alike for every
// system of metrics: the values of labels, a small fixed set of each, and the
// bounds of histograms. The packages below contrib export it.
package measure
