// Command stampede keeps a cache from being refilled by everybody at once.
//
// When an entry that many ask for expires, all of them miss it in the same
// moment, and all go to the database, which was cached because it cannot bear
// that. Here one of them gets a lock and refills the entry. The others are
// served the stale one meanwhile, or wait, if there is none.
//
// guard.go is what to copy.
package main
