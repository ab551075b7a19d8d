// Package record implements the epoch record, which every server carries for the memory guard of
// package redlock: its text, and the conclusions from several records.
//
// A server that lost its keys would grant a lock that another client still holds by the server's
// earlier vote. The record disappears together with the keys. It names the process and the data set
// that had them. A missing record, or a record with other names, therefore means that the server
// may have forgotten locks. A client that notices this writes a new record, of a new generation.
// The server's votes count again when every lock granted before the birth of the generation must
// have expired.
//
// That time depends on the TTLs in use. Therefore each record also lists its steps: the TTLs of the
// locks for which its server voted in this generation, with the time of their last use. The steps
// of the other servers then show which locks a server can have forgotten.
//
// The package is pure, except for New and DrawLife, which are random: it uses no time, I/O or
// goroutines. All times are readings of the clock of the server with the record, as durations since
// 1970. All durations are whole milliseconds.
package record
