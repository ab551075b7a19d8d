// Package load is the load of one trial: callers in one or several client processes that acquire
// and release locks, and the record of their results.
//
// Run is the parent's side. It starts this program anew for each process, whose main hands over to
// Main, and the two talk over the child's stdin and stdout in lines of JSON:
//
//	parent -> child  an assignment                 (connect and warm up)
//	child -> parent  ready
//	parent -> child  the moment at which to begin  (the same for all)
//	child -> parent  its part of the trial, and its holds
//
// URLs may contain passwords, so that they travel in the assignment alone and are taken out of
// every message. A child whose stdin closes stops at once: none outlives its parent.
//
// Data flow within a child: a pace says when a caller begins a cycle, the cycle asks the subject,
// the recorder counts its outcome. The parent adds up the children's counts, and looks for overlaps
// among their holds.
package load
