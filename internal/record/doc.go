// Package record is the note that every server carries of its own memory, for the
// memory guard of package redlock: the text, and the conclusions from several of them.
//
// A server that forgot its keys would grant a lock that another client still holds by the
// server's earlier vote. The record goes when the keys go, and names the process and
// the data set that had them. So a record that is missing, or that names others, means
// that the server may have forgotten locks. The client that finds that writes a new record, of a
// new generation, and the server's votes count again when each lock that was granted
// before the generation was born must have expired.
//
// How long that takes depends on the TTLs that were in use. So each record also lists
// the TTLs of the locks that its server voted for in this generation, with the time of
// the last use: the steps. The steps of the others then show which locks a server can have
// forgotten.
//
// But for New and DrawLife, which draw by lot, the package is pure: it knows no time, no I/O
// and no goroutines. All times are readings of the clock of the server that holds the
// record, as durations since 1970, and all durations are whole milliseconds.
package record
