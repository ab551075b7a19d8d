// Package history is what a run leaves behind: one line of JSON for each thing
// that a client, the register or the nemesis did, and when. The checks read
// nothing else, so that a history kept in a file can be judged again.
//
// Times are of a clock that all processes of a machine share and nobody can
// set. Where a reading cannot be taken at the very moment, it is taken on the side
// that makes a holder's claim shorter: a client that is paused between the two
// must not look as if it had held a lock for longer than it did.
package history
