// Package subject has the libraries under measurement behind one interface, each
// the way its own README recommends, and the physical limit: what the same
// servers and this machine could do without any library.
//
// Where a library has no opinion, a subject takes what suits the library best,
// and its Note says so. What none of them does, like ending with the caller's
// context, an adapter adds only where the benchmark could not run otherwise.
package subject
