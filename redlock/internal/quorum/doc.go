// Package quorum is the arithmetic of the algorithm: what votes decide, how long a lock
// lasts, and what a reading says of a server's clock. It is pure. It imports nothing that
// tells time, does I/O or locks, which a test checks.
//
// A Tally counts the replies to one request. Its three outcomes (Pending, Won, Lost) follow
// from q = N/2+1 alone. A Set names nodes by their index.
package quorum
